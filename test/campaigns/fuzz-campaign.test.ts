import t from 'tap'
import { startFuzzCampaign } from './fuzz-campaign.ts'
import { makeScript } from './fuzz-requests.ts'
import { prepareTrust } from './fuzz-trust.ts'

t.test(
  'some hundred connections of a fixed seed violate nothing, and most of their requests count',
  async (t) => {
    const trust = await prepareTrust(60)
    t.teardown(trust.remove)
    const campaign = await startFuzzCampaign(trust)
    let requests = 0
    let next = 0
    const work = async () => {
      while (next < 300) {
        const trial = await campaign.run(makeScript(1, next++, trust.shelf))
        requests += trial.requests.length
      }
    }
    await Promise.all(Array.from({ length: 20 }, work))
    t.equal(campaign.violation()?.what, undefined)
    t.ok(requests > 450, `${requests} requests`)
    t.ok(campaign.forwarded > requests / 4, `${campaign.forwarded} of them whole at the upstream`)
    t.equal(await campaign.stop(), 0)
  },
)
