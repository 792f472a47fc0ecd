/** A client with a journal in a separate process, which tests kill. */
import { Client, FileJournal } from "hapax/client";

const [url = "", journal = ""] = process.argv.slice(2);
const client = new Client({ journal: new FileJournal(journal) });
const answer = await client.send({ url, json: { amount: 5 } });
process.stdout.write(
  JSON.stringify({ status: answer.status, key: answer.key, isResumed: answer.isResumed }),
);
