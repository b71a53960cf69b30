/** Parses a large revocations file in a worker thread: in `workerData` its text, out one message with the outcome. */
import { parentPort, workerData } from 'node:worker_threads'
import { parseRevocations } from './revocations-file.ts'

parentPort?.postMessage(parseRevocations(String(workerData)))
