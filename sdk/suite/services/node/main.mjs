// The shop of the suite. HAPAX_FRAMEWORK and HAPAX_DRIVER choose a file of ./frameworks and of
// ./drivers, DATABASE_URL the database, PORT the port of loopback.
import { Shop } from "./shop.mjs";

const { HAPAX_DRIVER = "pg", HAPAX_FRAMEWORK = "express", DATABASE_URL, PORT } = process.env;

const { open } = await import(`./drivers/${HAPAX_DRIVER}.mjs`);
const { start } = await import(`./frameworks/${HAPAX_FRAMEWORK}.mjs`);
const shop = new Shop(DATABASE_URL, await open(DATABASE_URL));
await start(shop, Number(PORT));
