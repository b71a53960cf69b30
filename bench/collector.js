/**
 * A collector of spans: `node collector.js PORT take|hang`. `hang`: reads what it is sent, and answers nothing but
 * a GET, by which the benchmark sees that it listens.
 */
import { createServer } from 'node:http'

const hangs = process.argv[3] === 'hang'

createServer((req, res) => {
  req.resume().on('end', () => {
    if (req.method === 'GET' || !hangs) {
      res.end()
    }
  })
}).listen(Number(process.argv[2]), '127.0.0.1')
