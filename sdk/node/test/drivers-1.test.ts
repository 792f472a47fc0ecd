/** Every driver and ORM with express, first part: the parts run in parallel. */
import * as drivers from "./support/drivers.js";
import { startExpress } from "./support/frameworks.js";
import { suite } from "./support/suite.js";

suite("express with postgres.js", startExpress, drivers.openPostgresJs);
suite("express with kysely", startExpress, drivers.openKysely);
suite("express with drizzle on pg", startExpress, drivers.openDrizzlePg);
suite("express with drizzle on postgres.js", startExpress, drivers.openDrizzlePostgresJs);
