import t from 'tap'
import { supervising } from './supervising.ts'

t.test('a moment ago is soon enough for whoever asks for many things', async (t) => {
  const { create, told, said, clock } = supervising()
  const app = await create()
  await app.start()
  await Promise.all([told().ready(), told().keys(), told().jwks(), told().rssBytes()])
  clock.now += 99
  await told().statusMetrics()
  t.equal(said(0)?.filter((what) => what === 'tell').length, 1)
  clock.now += 1
  await told().ready()
  t.equal(said(0)?.filter((what) => what === 'tell').length, 2)
})
