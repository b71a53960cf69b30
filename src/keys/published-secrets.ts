/**
 * HMAC secrets that stand in standards, manuals, tutorials and templates, and so protect nothing.
 *
 * Kept as SHA-256 digests in base64url, so that this is no list of secrets to try; where tutorials decode a text from
 * hex or base64, the digests of both forms are here. Those that read like words or like a pattern need no entry:
 * `weak-secret.ts` refuses them by rule.
 *
 * @module
 */
import { hash } from 'node:crypto'

const PUBLISHED: ReadonlySet<string> = new Set([
  // RFC 7515, A.1
  'yOzJNhoF4oXwTCb5VyExpt6rB-niuGUFPG91pNi9KzI',
  // RFC 7520, 3.5
  'c-x0RYBZxwyuPwrehmP-DaHcSxFO2M2sdTZBQLRFikw',
  // documentation of PostgREST
  '_U3sdavC335Ph3biRs5zPSlpAjBpXEzo6nogfrOpOas',
  // wallarm/jwt-secrets, a list of secrets found in public code
  'X98pjpoMolTVQf7TPTDhiefyTBVdgne3u1q0r1hIZ2g',
  'aQJPIemtF1lNzM2T6HOZrySlQmzP5hCNF4fwM1lmq8Q',
  'urTDCcux1Tbq4udCeUEEDDQ_-s0Oa23V7hjRLGOYIvE',
  'CqZhKiGaEcNbD1WUX7SV_SlSfPDKlv1LVsUXzMJQjqQ',
  'K5EIHyunH9UMwaAXSYdVqEQtVXrB7_xgSuYlqjvwEl8',
  'VnM21zlMu9LF-7uUI2AFJINluNv9X10Wt3oRExnOBuk',
  'XTnah6x19_dza6vfLIGfBBS7KqnY8s3sngPtJ5cUj7I',
  '3CZQEprij2pYE1AAtvthAFUIF4QG8lAEF7EpzpCmZrY',
  'o5eAnSwbH_vTh3onRsYpp7smRQ2sabKQmRaDZZhnTJE',
  'n7AGBWwzete2As767n0soajBXCqXjPT9vUfIIp613T8',
  'mc2znxcHWvbpxEpo8w0I8tPSqMUIyAW6R2uRm93POTI',
  'rkLUXpeupoHlZgdBDw6nmMXTZURshu8So8UGK1pwlXU',
  'm05YKRIeE19t3i8bkWYjA7gpnnZNSXcZ_Uxl8DPlb18',
  'G5cSCSC8i220SZvL3BVUUEYGZoGxMJfGz1m8zyShgME',
  'TeD9n2eHFt0DMKrEEqSv0lAXmW3EAOV9XjBRCNqR0E8',
  'WpRb4RRN22EKMJ-ufgB_u8Zrp4crEXqheNgE5fi57Ms',
  'IBo7L7fQyhMh-GLSWYaYgqtNbScWGSu-4LtmvyVHqEI',
  'BD0CwP1r0ycFYwf-YyiMYnh2-oFSr-FeGZyOtd2-YiQ',
  'L5J9sZ5WVGoA989JKAvLbfbK2DZ__hRbr6XWlALPHmo',
  'cuk_FAs-AgtRTucRViK6rFTt28E2tCL4VpDahH5Y59Q',
  'h9xtS3YF5aYizApM_TbqROnEkskow9DplgEWEpYMu4A',
  'MvV5RMdTny7GMMasW9BjQMozFolvZny5hs3moWBBA6c',
  'poshlxoz8idEk3fWNVB3CFfKwazcJKVb-mzOIoCCtRI',
  'NxuXogL7_eklcf8DK_AdZnZQRVE9ptVVg3NcwZylnh0',
  'j2i4IaqzxsS0QZaK7EWwFQG4FG_aLdw5_zoc9xYX6ek',
  'MjhLsVH9agZfIreHHE0FCdFLvOGAKfEOwBNrOTgxBKI',
  'mYKNFK_ZXMcMmNalxXaIEy4k1WG5YIUNDn0QvEAZZVw',
  'SM7FdRA5td7oo4zZXSTg6SouQrJNbwqni0eNAWYQinY',
  'sqeJNLHZWJERqBcn4xoAXuWnKhSPeiLrxnd3Ra3ss7U',
  'lZvD8-rNeBFvKZSV5DzrizQFY4iLxqZxaW1F1I3fUFw',
  'AoYjNP7qcacyA_Wy95LvCL7lystygQ_I-dIEOGu6JEY',
  '9Sn-ZBkVcPd6cl2SXYNUBfAIGGkQXN9tgusSJLAijCo',
  'r2TDkZUfSv9wQ9Jza_HguUQiFg5zhi1eJUH51Qat8cw',
  '8CG6usvylDGdr3WKvHpJBPo2vNi5_f0sNH7MsiLOuQA',
  'DftTVeHL_aL8BA0mZphciWIACM2WWp8cW6FkoOhY3BQ',
  'HStljN4q7meXoP_DzK5JLqwK8oepk4biVbY_Rk8AbEs',
  'Yo0gemSZePVRqd_LKBAAjXNRg_OPapRwShuikhoZea4',
  'rD4nrbIA-dxXWoppYDzhWJQlrqeP2TH1Vg8I-opoXaM',
  'oC5c2vDFgKEy5Qp5x_r-A47h0m_2p4H2g_NmqfvXaH0',
  'mO1qoxdW5U4IJ90-h8mvQLY-SkVT8Kn0H3fjMm213dg',
  'cJPfI5Qm87_52Yonj9RmSTDyX2Gyuf5xnK-Vfpx64ZQ',
  'LQj4y_IQ5nGYIAeSuBDWI7duMg9h4PlsnEBLfrzFPhs',
  'yWzJHqtQJLLyv-WsxCmmXD-Bza_9mIxk9HeCy2y3Ao4',
  '_0GVQCivlCyRzpp9FjYThbwobEDEZMaSm9ICQnoWyBo',
  'xLV03_aUwUu-v-Rusqejv0o-T47jqaYXRt0NaILcLdM',
  '6Nnyqh-N6QCwWSudMRygkAI8VNwl4DTUz-xfm0F_HOo',
  'azcH45fygwfEdI927MceBtsmdPMv11IiyokpF_Je1r0',
  'a8F8isEdL6Hcd0kz6zCFPF4NOci4CUfx9aKakUGinYE',
  '7unXPtTuOCBpv5T65eUaUIDInGJ1vBBUogs6NuwuYt8',
  'K5OF0iETYqtKCLkAxEqtIfiEy0AhmmXgzzK2M50WqzY',
  'zer5N4EzGheTkm2l3Ckd2RPUbnd5FcFc1spWXVbi67Q',
  'NG314rpTwCp2w-E4Xi0Ixp9IN4wM5Z3KuFsWIzpD_G8',
  'yW7Dzv2kumZMAmold3UIUzGdwr7ZEWE3ew74cQgiYgE',
  // a pangram
  'NFOgp_HhEfxung6AcRk96gTq-Wy_5DGFOYWYdqqF-xU',
  'Bcbgjx2f2voDFH_Lj4LxJMdtL3Dj2Ynciq2159dFC-w',
  // tutorial of FastAPI, OAuth2 with JWT tokens
  'Vw2tQ94a9Mkl-SwWpopQk22kK33W_eskhQUHoRmarIk',
  'TQ-N7EUV0HphHFAvIq25XIVNlD1hIvuPlslQO0I1a6w',
  'lNLyz_Zsme1wWwktYGibjHAhf1rWjNITioHyRTSE_xM',
  // tutorials of Spring Security
  'Xfc-GqWdjzMsL1_W6hw30PIma2I-o8Tv5ss9V3_WpeE',
  'HtlWuTLj3SeAzA5fY5ANbAfWWUaF-mrIzHaD46XWEjU',
  'F1tPHaGdxJZYkd_EGGe3s2-ZMJ6YAS9mx_ECjmgKP3M',
  'M1TPz2XHsuaEDqb4gK7eI5dQyx0GOVDE6P2fv57HOjI',
  'E2yxxaebydlD79o4L94b-ibg4UD_REZXz3-wVuKXexw',
  's_b11PnO5Omf5dtjI0t3WiBe3CPvu_-HrMMIYmtf0ko',
  'vwti7aucJe0V2K10h8PgqYfCefR3yYzACGMUfstNnXE',
  '2h60Fs4Q4BA5Fn-J_YpjFC3X8-PP_D6hgOuE0Po_QH4',
  '1s15u2bmoq-Cr3dXJCjDTbBmCjDOLDduFoE3cACoBtA',
  // documentation of Hasura
  '7xynSR3uhxvl8OM6bT8-YxvIppE2-kn93z88pb871xQ',
  'CNQFy0hsdvz7MET6VGwCx4D2t1vFEJmXFmN2gVFu_HE',
  // default of eladmin
  'FssOyV7KLacAzmlRyxPaViwSR_6BSMFTYMt6Ytur-KU',
  'M4m4rLDFr24U-e3rJJzIFrAlGQGomtHpnF_TcxGbkuY',
])

/** Whether a secret has been published. */
export function isPublishedSecret(secret: Uint8Array): boolean {
  return PUBLISHED.has(hash('sha256', secret, 'base64url'))
}
