import { execFileSync, spawnSync } from 'node:child_process'
import fc from 'fast-check'
import t from 'tap'
import { HeaderLines, SECOND_RESOURCE_WORDS } from '../../src/http/headers.ts'
import {
  coversScope,
  intersectScopes,
  parseScope,
  type Scope,
  scopeAllows,
  scopeProblem,
} from '../../src/token/scopes.ts'

function scope(text: string): Scope {
  const read = parseScope(text)
  if (!read.ok) {
    throw new Error(read.error)
  }
  return read.value
}

type Headers = readonly (readonly [string, string])[]

function judge(
  text: string,
  method: string,
  target: string,
  headers: Headers = [],
  nominated: string[] = [],
) {
  const lines = new HeaderLines([...headers.flat(), 'Connection', nominated.join()])
  const [path = ''] = target.split('?')
  return scopeAllows(scope(text), { method, target, path, host: 'h:80', lines })
}

t.test('a scope covers its path and all below it, on segment boundaries', async (t) => {
  for (const [item, path, allowed] of [
    ['/a', '/a', true],
    ['/a', '/a/', true],
    ['/a/', '/a', true],
    ['/a', '/a/b/c', true],
    ['/a', '/%61/x', true],
    ['/%61', '/a/x', true],
    ['/', '/', true],
    ['/', '/x', true],
    ['/a', '/', false],
    ['/a', '/ab', false],
    ['/a', '/A', false],
    ['/a', '/a/x%2fy', true],
    ['/a', '/a%2fx', false],
    ['/a/x', '/a%2fx', false],
    ['/a%2fx', '/a/x', false],
    ['/a%2fx', '/a%2Fx/y', true],
    ['/\xc3\xa9'.replace(/[^/]/g, encode), '/\xc3\xa9', true],
    ['/a', '/a/b;v=1', true],
    ['/a', '/a;v=1/b', false],
  ] as const) {
    t.equal(judge(`storage.read:${item}`, 'GET', path), allowed, `${item} and ${path}`)
  }
})

function encode(byte: string): string {
  return `%${byte.charCodeAt(0).toString(16)}`
}

/**
 * CASES of paths that two readers could read differently;
 * each is below `/a` to a reader that takes it literally.
 */
const AMBIGUOUS_PATHS =
  String.raw`/a/../b /a/%2e%2e/b /a/%252e%252e/b /a%2f..%2fb /a/..%5cb /a/x\y /a//b /a/./b
  /a/b/..;/c /a/b/..%3b/c /a/.;x /a/%00 /a/%7f /a/%c2%80 /a/%ff /a/%c0%ae /a/%zz /a/% /a/%4 /a/x%252fy
  /a/x%255Cy /a/.. /a/. /a/x// /a/%2f //a /a/..%3fx /a/.%23`.split(/\s+/)

t.test('a path with several readings is never allowed, and is no path of an item', async (t) => {
  for (const path of AMBIGUOUS_PATHS) {
    t.notOk(judge('storage.read:/a storage.modify:/', 'GET', path), path)
    t.notOk(judge('storage.read:/ storage.modify:/', 'COPY', '/a', [['Destination', path]]), `to ${path}`)
    t.notOk(judge('storage.read:/', 'GET', '/a', [['X-Copy-From', path]]), `from ${path}`)
    t.ok(scopeProblem(`storage.read:${path}`), `item ${path}`)
  }
})

t.test('a bad scope is named by its item', async (t) => {
  for (const [text, place] of [
    ['', /empty/],
    ['storage.read:/a  storage.read:/b', /item 2/],
    [' storage.read:/a', /item 1/],
    ['storage.read:/a ', /item 2/],
    ['storage.read:/photos, storage.read:/x', /item 1: a space separates items, not a comma/],
    ['storage.read:/a\tstorage.read:/b', /item 1/],
    ['storage.read:/a storage.write:/a', /item 2/],
    ['storage.read', /item 1/],
    ['storage.read:a', /item 1/],
    ['Storage.read:/a', /item 1/],
    ['storage.read:/a?x', /item 1/],
    ['storage.read:/a#x', /item 1/],
    ['storage.read:/é', /item 1/],
    [`storage.read:/${'a'.repeat(4096)}`, /4096/],
  ] as const) {
    t.match(scopeProblem(text), place, JSON.stringify(text))
  }
})

const METHODS_BY_ACTION = {
  read: ['GET', 'OPTIONS', 'PROPFIND'],
  create: ['MKCOL'],
  modify: ['PUT', 'POST', 'PATCH', 'DELETE', 'LOCK', 'UNLOCK', 'PROPPATCH', 'MERGE', 'get'],
}

t.test('each method needs its action', async (t) => {
  const actions = ['read', 'create', 'modify']
  const includes = (has: string, needs: string) => has === needs || (has === 'modify' && needs === 'create')
  for (const action of actions) {
    const text = `storage.${action}:/a`
    for (const [needs, methods] of Object.entries(METHODS_BY_ACTION)) {
      for (const method of methods) {
        t.equal(judge(text, method, '/a/x'), includes(action, needs), `${method} with ${action}`)
        t.notOk(judge(text, method, '/b'), `${method} outside`)
      }
    }
    t.ok(judge(text, 'HEAD', '/a/x'), `HEAD with ${action}`)
    for (const method of ['REPORT', 'SEARCH']) {
      t.notOk(judge(text, method, '/a'), `${method} below the root`)
      t.equal(judge(`storage.${action}:/`, method, '/a'), action === 'read', `${method} with ${action}:/`)
    }
  }
})

/** The name of a scope, a request, and its header lines. `Connection` nominates one of them. */
type JudgedRequest = readonly [scope: keyof typeof SCOPES, request: string, ...lines: string[]]

const SCOPES = {
  create: 'storage.create:/a',
  copy: 'storage.read:/r storage.create:/a',
  modify: 'storage.read:/r storage.modify:/a',
  all: 'storage.read:/ storage.modify:/',
}

const ALLOWED: readonly JudgedRequest[] = [
  ['create', 'PUT /a/x', 'If-None-Match: *'],
  ['create', 'PUT /a/x', 'If-None-Match: *', 'X-Amz-Acl: public-read', 'Connection: x-amz-acl'],
  ['create', 'PUT /a/x', 'If-None-Match: *', 'X-Object-Meta-Acl-Of: k', 'X-Amz-Meta-Grant-Read: k'],
  ['modify', 'PUT /a/x', 'If-None-Match: *', 'X-Amz-Acl: public-read'],
  ['modify', 'PUT /a/x', 'If-None-Match: *, "x"'],
  ['modify', 'GET /r/x', 'If-None-Match: "x"', 'If-None-Match: "y"'],
  ['copy', 'COPY /r/x', 'Destination: /a/y', 'Overwrite: F'],
  ['copy', 'COPY /r/x', 'Destination: /a/y', 'OVERWRITE: F'],
  ['modify', 'COPY /r/x', 'Destination: /a/y'],
  ['modify', 'COPY /r/x', 'Destination: /a/y', 'Destination: /a/y'],
  ['modify', 'COPY /r/x', 'Destination: HTTPS://H:80/a/y'],
  ['modify', 'MOVE /a/x', 'Destination: /a/y'],
  ['modify', 'DELETE /a/x', 'Destination: /b'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: /r/y'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: r/y'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: r/y:z?versionId=3/L4k'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: %72/y'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: b/y', 'Connection: x-amz-copy-source'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: https://h:80/r/y'],
  ['modify', 'GET /r/x', 'X-Method: DELETE', 'Origin: o', 'Depth: 1'],
]

const REFUSED: readonly JudgedRequest[] = [
  ['create', 'PUT /a/x', 'If-None-Match: *', 'Connection: if-none-match'],
  ['create', 'PUT /a/x', 'If-None-Match: *, "x"'],
  ['create', 'PUT /a/x', 'If-None-Match: "x"'],
  ['create', 'PUT /a/x', 'If-None-Match: *', 'If-None-Match: *'],
  ['create', 'PUT /a/x', 'If_None_Match: *'],
  ['create', 'PUT /a/x', 'If-None-Match: *', 'X-Amz-Acl: public-read'],
  ['create', 'PUT /a/x', 'If-None-Match: *', 'x_amz_grant_read: uri="x"'],
  ['create', 'PUT /a/x', 'If-None-Match: *', 'X-Container-Read: .r:*'],
  ['create', 'PUT /a/x', 'If-None-Match: *', 'X-Container-Meta-Temp-URL-Key: k'],
  ['create', 'MKCOL /a/x', 'X-Oss-Acl: public-read'],
  ['modify', 'PUT /a/x', 'If-None-Match: *', 'if-none-match: "x"'],
  ['copy', 'COPY /r/x', 'Destination: /a/y', 'Overwrite: f'],
  ['copy', 'COPY /r/x', 'Destination: /a/y', 'Overwrite: F', 'Connection: overwrite'],
  ['copy', 'COPY /r/x', 'Destination: /a/y'],
  ['copy', 'COPY /r/x', 'Destination: /a/y', 'Overwrite: T'],
  ['copy', 'COPY /r/x', 'Destination: /a/y', 'Overwrite: F', 'Overwrite: F'],
  ['modify', 'COPY /r/x', 'Destination: /a/y', 'Overwrite: T', 'Overwrite: F'],
  ['modify', 'COPY /r/x'],
  ['modify', 'COPY /r/x', 'Destination:'],
  ['modify', 'COPY /r/x', 'Destination: /b'],
  ['modify', 'COPY /r/x', 'Destination: /a/y', 'Connection: destination'],
  ['modify', 'COPY /r/x', 'Destination: /a/y', 'Destination: /a/z'],
  ['modify', 'COPY /r/x', 'Destination: http://h/a/y'],
  ['modify', 'COPY /r/x', 'Destination: http://u@h:80/a/y'],
  ['modify', 'COPY /r/x', 'Destination: //h:80/a/y'],
  ['modify', 'COPY /r/x', 'Destination: ftp://h:80/a/y'],
  ['modify', 'COPY /r/x', 'Destination: /a/y?z'],
  ['modify', 'COPY /r/x', 'Destination: /a/y, /b'],
  ['modify', 'COPY /r/x', 'Destination: a/y'],
  ['modify', 'MOVE /r/x', 'Destination: /a/y'],
  ['modify', 'MOVE /a/x', 'Destination: /r/y'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: r%2Fy'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: /r/y?versionId=x/../../b'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: /r/y?acl'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: b/y'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: https://other/r/y'],
  ['all', 'PUT /a/x', 'x-amz-copy-source: arn:aws:s3:::r/y'],
  ['all', 'PUT /a/x', 'x-amz-copy-source:'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: /r/y', 'x-amz-copy-source: /r/z'],
  ['modify', 'PUT /a/x', 'x-amz-copy-source: /r/y', 'x-ms-copy-source: /b'],
  ['modify', 'HEAD /a/x', 'X-Goog-Copy-Source: /b'],
  ['modify', 'PUT /a/x', 'X_Amz_Copy_Source: /r/y'],
  ['modify', 'GET /r/x', 'X-HTTP-Method-Override: GET'],
  ['modify', 'PUT /r/x', 'X-Amz-Rename-Source: /r/y'],
  ['modify', 'PUT /r/x', 'x_oss_copy_source: /r/y'],
  ['modify', 'PUT /r/x', 'Destination_Account: other'],
  ['modify', 'GET /r/x', 'X-Http-Method: GET', 'Connection: x-http-method'],
  ['modify', 'GET /r/x', 'x_method_override: DELETE'],
]

function isAllowed([name, request, ...lines]: JudgedRequest): boolean {
  const [method = '', path = ''] = request.split(' ')
  const headers = lines.map((line) => {
    const [field = '', value = ''] = line.split(/: ?(.*)/s)
    return [field, value] as const
  })
  const nominated = headers.flatMap(([field, value]) => (field === 'Connection' ? [value] : []))
  return judge(SCOPES[name], method, path, headers, nominated)
}

t.test('a header decides if it is read in one way and reaches the upstream', async (t) => {
  for (const request of ALLOWED) {
    t.ok(isAllowed(request), `allowed: ${request.join(' | ')}`)
  }
  for (const request of REFUSED) {
    t.notOk(isAllowed(request), `refused: ${request.join(' | ')}`)
  }
})

t.test('a query names what a condition does not protect, so creating it is not enough', async (t) => {
  const unlessItExists: Headers = [['If-None-Match', '*']]
  t.ok(judge('storage.create:/a', 'PUT', '/a/x', unlessItExists))
  t.ok(judge('storage.create:/a', 'MKCOL', '/a/x'))
  for (const query of [
    '',
    'acl',
    'policy',
    'tagging',
    'lifecycle',
    'x=1',
    '?',
    '&',
    'versionId=null',
    'partNumber=1',
  ]) {
    const target = `/a/x?${query}`
    t.notOk(judge('storage.create:/a', 'PUT', target, unlessItExists), target)
    t.notOk(judge('storage.create:/a', 'MKCOL', target), target)
    t.ok(judge('storage.modify:/a', 'PUT', target, unlessItExists), target)
    t.ok(judge('storage.modify:/a', 'MKCOL', target), target)
  }
})

t.test(
  'a non-standard header with a word for a second resource is refused, and other names pass',
  async (t) => {
    const everything = 'storage.read:/ storage.modify:/'
    const passes = (name: string) => judge(everything, 'PUT', '/a/x', [[name, '/b']])
    const word = fc.constantFrom(...SECOND_RESOURCE_WORDS)
    const part = fc.constantFrom('amz', 'oss', 'storage', 'v2', 'object')
    const dash = fc.constantFrom('-', '_', '--')
    const named = fc
      .tuple(fc.constantFrom('X', 'Acme', 'x'), part, word, fc.option(part))
      .chain(([start, vendor, word, end]) =>
        fc.array(dash, { minLength: 3, maxLength: 3 }).map(([first, second, third]) => {
          const name = `${start}${first}${vendor}${second}${word}`
          return end === null ? name : `${name}${third}${end}`
        }),
      )
    fc.assert(
      fc.property(named, (name) => !passes(name)),
      { numRuns: 1000 },
    )
    const refused = [
      'Source',
      'X-Original-URL',
      'X-Original-URI',
      'X-Rewrite-URL',
      'X-Object-Manifest',
      'X-Symlink-Target',
      'X-Amz-Website-Redirect-Location',
      'X-Ms-Source-If-Match',
      'X-Copy-From-Account',
      'Destination-Account',
      'X-Envoy-Original-Path',
      'x.rewrite.url',
      'X-Meta-Source',
      'X-Oss-Copy-Source-If-Match',
      'URL',
      'X-Link_',
    ]
    for (const name of refused) {
      t.notOk(passes(name), name)
    }
    const accepted = [
      'Content-Location',
      'Link',
      'Sec-Fetch-Site',
      'X-Forwarded-Uri',
      'X-Forwarded-Path',
      'Content_Location',
      'X-Amz-Meta-Source',
      'x-object-meta-redirect-url',
      'X-Amz-Copy-Source-If-Match',
      'X-Amz-Copy-Source-Range',
      'X-Goog-Copy-Source-Server-Side-Encryption-Customer-Key',
      'X-Sourcemap',
      'X-Paths',
      'X-Curl',
      'X-Amz-Acl',
    ]
    for (const name of accepted) {
      t.ok(passes(name), name)
    }
    const fromEnvoy = new HeaderLines(['X-Envoy-Original-Path', '/b', 'X-Envoy-Peer', 'p'], true)
    const request = { method: 'GET', target: '/a', path: '/a', host: 'h', lines: fromEnvoy }
    t.ok(scopeAllows(scope('storage.read:/a'), request), 'from a trusted peer')
  },
)

t.test('an intersection keeps the narrower text', async (t) => {
  for (const [a, b, both] of [
    ['storage.read:/', 'storage.read:/a storage.read:/a', 'storage.read:/a storage.read:/a'],
    [
      'storage.read:/a storage.create:/b',
      'storage.read:/a/b storage.modify:/',
      'storage.read:/a/b storage.create:/b',
    ],
    ['storage.create:/a', 'storage.modify:/a/b', 'storage.create:/a/b'],
    ['storage.read:/a', 'storage.modify:/a', ''],
    ['storage.read:/a', 'storage.read:/ab', ''],
    ['storage.read:/a%2fb', 'storage.read:/a', ''],
  ] as const) {
    t.equal(intersectScopes(scope(a), scope(b))?.text, both, `${a} and ${b}`)
    t.equal(intersectScopes(scope(b), scope(a))?.text, both, `${b} and ${a}`)
  }
  t.equal(intersectScopes(undefined, scope('storage.read:/a'))?.text, 'storage.read:/a')
  t.equal(intersectScopes(scope('storage.read:/a'), undefined)?.text, 'storage.read:/a')
  t.equal(intersectScopes(undefined, undefined), undefined)
})

// The model reads bytes one by one, and segments as lists.

const SLASH = -1

/** Both readings of a path as lists of segments, or undefined if it has several. */
function readingsOf(raw: string): readonly (readonly string[])[] | undefined {
  const bytes = decodedBytes(raw)
  if (bytes === undefined || bytes.includes(0x01)) {
    return undefined
  }
  const separated = textWith(bytes, 0x2f)
  const literal = textWith(bytes, 0x01)
  if (separated === undefined || literal === undefined || isUnclear(separated)) {
    return undefined
  }
  const segments = segmentsOf(separated)
  return segments.some(isBadSegment) ? undefined : [segments, segmentsOf(literal)]
}

/** Decodes the path once. `SLASH` stands for an encoded slash. Undefined with an incomplete escape. */
function decodedBytes(raw: string): number[] | undefined {
  const bytes: number[] = []
  for (const [part] of raw.matchAll(/%.{0,2}|[^%]/gs)) {
    if (!part.startsWith('%')) {
      bytes.push(part.charCodeAt(0))
    } else if (part.toLowerCase() === '%2f') {
      bytes.push(SLASH)
    } else if (/^%[0-9a-fA-F]{2}$/.test(part)) {
      bytes.push(Number.parseInt(part.slice(1), 16))
    } else {
      return undefined
    }
  }
  return bytes
}

/** The text of the bytes, with an encoded slash as `slash`. Undefined if they are not UTF-8. */
function textWith(bytes: readonly number[], slash: number): string | undefined {
  const buffer = Buffer.from(bytes.map((byte) => (byte === SLASH ? slash : byte)))
  const text = buffer.toString()
  return Buffer.from(text).equals(buffer) ? text : undefined
}

function isUnclear(path: string): boolean {
  const isEncodedTwice = ['%2e', '%2f', '%5c'].some((encoded) => path.toLowerCase().includes(encoded))
  return isEncodedTwice || /[\u0000-\u001f\u007f-\u009f\\]/.test(path) || !path.startsWith('/')
}

function segmentsOf(path: string): string[] {
  const segments = path.slice(1).split('/')
  return segments.at(-1) === '' ? segments.slice(0, -1) : segments
}

const isBadSegment = (segment: string) => segment === '' || ['.', '..'].includes(segment.split(';')[0] ?? '')

function modelAllows(items: readonly string[], action: string, path: string): boolean {
  const readings = readingsOf(path)
  const granted = items.map((item) => /^storage\.(\w+):(.*)$/.exec(item) ?? [])
  return (readings ?? [[]]).every(
    (segments, reading) =>
      readings !== undefined &&
      granted.some(([, has = '', prefix = '']) => {
        const parent = readingsOf(prefix)?.[reading] ?? ['never']
        const suffices = has === action || (has === 'modify' && action === 'create')
        return suffices && parent.every((segment, index) => segments[index] === segment)
      }),
  )
}

const PIECES = [
  ...String.raw`/ / / a b ab A . .. ; %2e %2F %5c \ %25 2e %00 %01 %ff %c3%a9 %61 %3b %7f %c2%85 %zz % %20`.split(
    ' ',
  ),
  '\xff',
  '\xc3\xa9',
]
const wildPath = fc.array(fc.constantFrom(...PIECES), { maxLength: 8 }).map((parts) => `/${parts.join('')}`)
const tamePath = fc
  .array(fc.constantFrom('/a', '/b', '/ab', '/%61', '/a%2fb'), { maxLength: 4 })
  .map((parts) => parts.join('') || '/')
const path = fc.oneof(wildPath, tamePath)
const action = fc.constantFrom('read', 'create', 'modify')
const item = fc.tuple(action, path).map(([action, path]) => `storage.${action}:${path}`)
const items = fc.array(item, { minLength: 1, maxLength: 4 }).filter((list) => parseScope(list.join(' ')).ok)
const METHOD_OF: Record<string, string> = { read: 'GET', create: 'MKCOL', modify: 'DELETE' }

t.test('judgements and parsing agree with the model', async () => {
  fc.assert(
    fc.property(items, action, path, (items, action, path) => {
      const judged = judge(items.join(' '), METHOD_OF[action] ?? '', path)
      return judged === modelAllows(items, action, path)
    }),
    { numRuns: 4000 },
  )
  fc.assert(
    fc.property(path, (path) => {
      const isAscii = /^[!-~]*$/.test(path)
      return parseScope(`storage.read:${path}`).ok === (isAscii && readingsOf(path) !== undefined)
    }),
    { numRuns: 1000 },
  )
})

t.test('an intersection allows what both allow, and covers no more', async () => {
  fc.assert(
    fc.property(items, items, action, tamePath, (a, b, action, path) => {
      const both = intersectScopes(scope(a.join(' ')), scope(b.join(' ')))
      const method = METHOD_OF[action] ?? ''
      const request = { method, target: path, path, host: 'h', lines: new HeaderLines([]) }
      const allowedByBoth = judge(a.join(' '), method, path) && judge(b.join(' '), method, path)
      const isExact = [...a, ...b, path].every((text) => !/%2f/i.test(text))
      const allowed = both !== undefined && scopeAllows(both, request)
      const isCovered = both !== undefined && coversScope(scope(a.join(' ')), both)
      return isCovered && (isExact ? allowed === allowedByBoth : !allowed || allowedByBoth)
    }),
    { numRuns: 3000 },
  )
})

const PYTHON = process.env['SCITOKENS_PYTHON'] ?? 'python3'
const hasScitokens = spawnSync(PYTHON, ['-c', 'import scitokens']).status === 0

/** Where both agree: scitokens takes neither `/a/` for `/a` nor `modify` for `create`. */
t.test(
  'judgements agree with scitokens',
  { skip: !hasScitokens && 'python3 has no scitokens' },
  async (t) => {
    const plain = fc
      .array(fc.constantFrom('/a', '/b', '/ab', '/A', '/%61', '/a-b', '/a~'), { minLength: 1, maxLength: 4 })
      .map((parts) => parts.join(''))
    const anyItem = fc.tuple(action, plain).map(([action, path]) => `storage.${action}:${path}`)
    const cases = fc.sample(fc.tuple(fc.array(anyItem, { minLength: 1, maxLength: 4 }), action, plain), 2000)
    const script = `
import json, sys, scitokens
enforcer = scitokens.Enforcer('https://issuer', audience='storage')
def allows(scope, action, path):
    token = scitokens.SciToken(key=None)
    token.update_claims({'iss': 'https://issuer', 'aud': 'storage', 'scope': ' '.join(scope)})
    actions = ['create', 'modify'] if action == 'create' else [action]
    return any(enforcer.test(token, 'storage.' + each, path) for each in actions)
print(json.dumps([allows(*case) for case in json.load(sys.stdin)]))`
    const verdicts: unknown = JSON.parse(
      String(execFileSync(PYTHON, ['-c', script], { input: JSON.stringify(cases) })),
    )
    t.same(
      verdicts,
      cases.map(([items, action, path]) => judge(items.join(' '), METHOD_OF[action] ?? '', path)),
    )
    t.ok(
      Array.isArray(verdicts) && verdicts.includes(true) && verdicts.includes(false),
      'both verdicts occur',
    )
  },
)
