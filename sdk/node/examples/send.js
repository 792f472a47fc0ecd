// Sends an order until it has a final response. Run it again after a crash: there is one order.
//
//   node send.js http://127.0.0.1:3000/orders orders.journal
import { Client, FileJournal } from "hapax/client";

const [url, journal] = process.argv.slice(2);
const client = new Client({
  journal: new FileJournal(journal),
  onAttempt: ({ attempt, status, notes }) =>
    console.error(`attempt ${attempt}: ${status ?? notes}`),
});
const answer = await client.send({ url, json: { item: "tea", amount: 5 }, name: "order 7" });
console.log(answer.status, answer.body.toString());
