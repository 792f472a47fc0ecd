/** Every framework with pg. */
import { openPg } from "./support/drivers.js";
import * as frameworks from "./support/frameworks.js";
import { suite } from "./support/suite.js";

suite("express with pg", frameworks.startExpress, openPg);
suite("fastify with pg", frameworks.startFastify, openPg);
suite("hono with pg", frameworks.startHono, openPg);
suite("nest on express with pg", frameworks.startNest, openPg);
suite("nest on fastify with pg", frameworks.startNestFastify, openPg);
