import t from 'tap'
import {
  type BodySource,
  type BodyTaker,
  ClientRequest,
  headerValues,
} from '../../src/http/client-request.ts'

/** A request, and what its taker and its source were told. */
function requested() {
  const told: string[] = []
  let mayRead = true
  let holds = 0
  const source: BodySource = {
    onPace: () => {
      mayRead = request.wantsBytes
    },
    hold: () => {
      holds++
      return () => void holds--
    },
  }
  const head = {
    method: 'PUT',
    url: '/a?b',
    httpVersion: '1.1',
    rawHeaders: ['Host', 'h'],
    isRemembered: false,
  } as const
  const request = new ClientRequest(head, source)
  /** What was told since the last look. */
  const look = () => told.splice(0)
  /** What its source was told last. */
  const pace = () => (mayRead ? 'more' : 'no more')
  const taker = (onChunk: (text: string) => void = () => {}): BodyTaker => ({
    onRequestBody: (chunk) => {
      told.push(chunk.toString())
      onChunk(chunk.toString())
    },
    onRequestEnd: (rawTrailers) => void told.push(`end ${rawTrailers.join()}`),
  })
  const body = (text: string) => request.onBody(Buffer.from(text))
  return { request, head, look, pace, taker, body, holds: () => holds }
}

t.test('a request is what its head says', async (t) => {
  const { request, head } = requested()
  t.match(request, head)
  t.equal(request.complete, false)
})

t.test('whoever takes the body is told each piece as it comes, and the end once', async (t) => {
  const { request, look, taker, body } = requested()
  request.giveTo(taker())
  t.same(look(), [])
  body('a')
  t.same(look(), ['a'])
  body('b')
  request.onEnd(['X', 'y'])
  t.same(look(), ['b', 'end X,y'])
  t.equal(request.complete, true)
  request.resume()
  request.giveTo(taker())
  t.same(look(), [], 'nothing twice')
})

t.test('what comes before anybody wants it is kept, and no more is read meanwhile', async (t) => {
  const { request, look, pace, taker, body } = requested()
  t.equal(request.wantsBytes, true, 'what comes may be the whole of a small body')
  const memory = Buffer.from('first')
  request.onBody(memory)
  t.equal(pace(), 'no more')
  memory.fill('x')
  body('second')
  request.onEnd([])
  t.equal(request.complete, true)
  request.giveTo(taker())
  t.same(look(), ['firstsecond', 'end '])
})

t.test('an empty body is an end alone', async (t) => {
  const { request, look, taker } = requested()
  request.onEnd([])
  request.giveTo(taker())
  t.same(look(), ['end '])
})

t.test('while its taker pauses nothing is told, and nothing read; then all of it in one piece', async (t) => {
  const { request, look, pace, taker, body } = requested()
  request.giveTo(taker())
  request.pause()
  t.equal(pace(), 'no more')
  body('a')
  body('b')
  request.onEnd([])
  t.same(look(), [])
  request.resume()
  t.same(look(), ['ab', 'end '])
})

t.test(
  'a taker that pauses at each piece gets the end when it asks for it, behind the last piece',
  async (t) => {
    const { request, look, pace, taker, body } = requested()
    request.giveTo(taker(() => request.pause()))
    for (const text of ['a', 'b', 'c']) body(text)
    request.onEnd([])
    t.same(look(), ['a'])
    request.resume()
    t.same([look(), pace()], [['bc'], 'no more'])
    request.resume()
    t.same([look(), pace()], [['end '], 'more'])
  },
)

t.test('a taker that pauses and resumes within a piece gets everything once, in order', async (t) => {
  const { request, look, taker, body } = requested()
  for (const text of ['a', 'b']) body(text)
  request.giveTo(
    taker(() => {
      request.pause()
      request.resume()
    }),
  )
  body('c')
  request.onEnd([])
  t.same(look(), ['ab', 'c', 'end '])
})

t.test('a body that nobody wants is neither kept nor told, nor read', async (t) => {
  const { request, look, pace, body } = requested()
  body('before')
  request.leaveUnread()
  t.equal(pace(), 'no more')
  body('behind')
  request.onEnd([])
  t.same(look(), [])
  const second = requested()
  second.request.giveTo(second.taker(() => second.request.leaveUnread()))
  second.body('a')
  second.body('b')
  second.request.onEnd([])
  t.same(second.look(), ['a'], 'from the piece on at which that was said')
  const third = requested()
  third.body('a')
  third.body('b')
  third.request.onEnd([])
  third.request.giveTo(third.taker(() => third.request.leaveUnread()))
  t.same(third.look(), ['ab'])
})

t.test('a piece is held where it lies', async (t) => {
  const { request, holds } = requested()
  const release = request.hold()
  t.equal(holds(), 1)
  release()
  t.equal(holds(), 0)
})

t.test('the values of a header are those of its lines, in order, in any case', async (t) => {
  const rawHeaders = ['A', '1', 'b', 'a', 'a', '2', 'B', 'A', 'aa', '3']
  t.same(headerValues(rawHeaders, 'a'), ['1', '2'])
  t.same(headerValues(rawHeaders, 'b'), ['a', 'A'])
  t.same(headerValues(rawHeaders, '1'), [], 'a value is no name')
  t.same(headerValues([], 'a'), [])
})
