/** The metrics of the feed, as `METRICS` of `ops/metrics.ts` declares those of the core. */

/**
 * What a follower was answered.
 *   whole, changes  the state, or what has changed in it
 *   unchanged       304: there was nothing new in the time that the follower waits
 *   invalid         400
 *   unauthorized    401
 *   refused         429: there are `feed.maxFollowers`
 *   unready         503: there is no state yet
 */
export const FEED_RESPONSES = [
  'whole',
  'changes',
  'unchanged',
  'invalid',
  'unauthorized',
  'refused',
  'unready',
] as const
export type FeedResponse = (typeof FEED_RESPONSES)[number]

export const FEED_METRICS = {
  feed_followers: {
    type: 'gauge',
    help: 'Followers of the feed that wait or are being served.',
    labels: [],
  },
  feed_responses_total: {
    type: 'counter',
    help: 'Responses to followers of the feed by kind.',
    labels: ['kind'],
  },
  feed_sent_bytes_total: {
    type: 'counter',
    help: 'Body bytes of states and changes that were sent to followers.',
    labels: [],
  },
  feed_followers_dropped_total: {
    type: 'counter',
    help: 'Followers whose connection ended before they had read their response.',
    labels: [],
  },
} as const
