/**
 * Every scenario of `npm run bench`, in the order of the report.
 *
 * @module
 */
import type { Scenario } from './bench.ts'
import { coldTokens } from './scenarios/cold-tokens.ts'
import { connectionPerRequest, singleConnection } from './scenarios/connections.ts'
import { halfLoad } from './scenarios/half-load.ts'
import { hotToken } from './scenarios/hot-token.ts'
import { idleConnections } from './scenarios/idle-connections.ts'
import { loginsPerSecond } from './scenarios/logins-per-second.ts'
import { manyTokens } from './scenarios/many-tokens.ts'
import { objects } from './scenarios/objects.ts'
import { refusedTokens } from './scenarios/refused-tokens.ts'
import { start } from './scenarios/start.ts'
import { tokenMemory } from './scenarios/token-memory.ts'
import { workers } from './scenarios/workers.ts'

export const SCENARIOS: readonly Scenario[] = [
  hotToken,
  manyTokens,
  coldTokens,
  refusedTokens,
  connectionPerRequest,
  singleConnection,
  halfLoad,
  objects,
  loginsPerSecond,
  idleConnections,
  tokenMemory,
  start,
  workers,
]
