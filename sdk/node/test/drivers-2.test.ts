/** Every driver and ORM with express, second part: the parts run in parallel. */
import * as drivers from "./support/drivers.js";
import { startExpress } from "./support/frameworks.js";
import { suite } from "./support/suite.js";

suite("express with prisma", startExpress, drivers.openPrisma);
suite("express with typeorm", startExpress, drivers.openTypeorm);
suite("express with knex", startExpress, drivers.openKnex);
