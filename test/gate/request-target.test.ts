import t from 'tap'
import { isHost, originForm } from '../../src/gate/request-target.ts'

t.test('a target in origin form stays as it is, to the byte', async (t) => {
  for (const target of [
    '/',
    '/a//../b?c=%2F&d',
    '//host/x',
    '/\\@',
    '/a@b:c|d"<>{}^`',
    '/%',
    '/\xe9',
    '/http://evil.example/',
  ])
    t.equal(originForm(target, 'h'), target)
})

t.test('the absolute form is accepted if its authority equals Host, and put in origin form', async (t) => {
  for (const [url, host, target] of [
    ['http://H:80/a', 'h:80', '/a'],
    ['HTTPS://h', 'h', '/'],
    ['http://h?q=/y', 'h', '/?q=/y'],
    ['http://h//b', 'h', '//b'],
    ['http://[2001:DB8::1]:9000/b', '[2001:db8::1]:9000', '/b'],
    ['http://h/http://evil.example/', 'h', '/http://evil.example/'],
  ] as const)
    t.equal(originForm(url, host), target, url)
})

t.test('every other target is refused', async (t) => {
  for (const target of [
    ...['', '*', 'h', 'h:443', 'b/k', '?x', '\\b', ' /', '%2fb', 'h/', 'javascript:x'],
    ...['http:', 'http:/h/', 'http:h/', 'http//h/', 'ftp://h/', 'ws://h/', 'file:///etc/passwd'],
    ...[' http://h/', 'http://other/a', 'http:///x', 'http://', 'http://h:80/x', 'http://h:/x'],
    ...['http://h.other/', 'http://hx/', 'http://h@other/', 'http://u:p@h/x', 'http://h\\x'],
    ...['http://h;x', 'http://h%2f', 'http://h#x', 'http://h/#x'],
    // A fragment, a space and controls are cut differently by different readers.
    ...['/#', '/a#/b', '/?#', '/a b', '/a\tb', '/a\0b', '/a\r\nX: y', '/a\nb', '/\x7f', '/\x1f'],
    ...['http://h/ x'],
  ])
    t.equal(originForm(target, 'h'), undefined, JSON.stringify(target))
  t.equal(originForm('http://h/', undefined), undefined)
})

t.test('Host is one name or address and at most one port', async (t) => {
  for (const host of [
    ...['a', 'STORAGE.example:8080', 'a.', 'a:', 'a:0', 'a:65535', 'my_bucket.s.example', 'b~1'],
    ...['192.0.2.1:80', '[::1]', '[2001:DB8::1]:65535', '[::ffff:192.0.2.1]', "a!$&'()*+;=b"],
    ...['caf%C3%A9.example'],
  ])
    t.equal(isHost(host), true, host)
  for (const host of [
    ...['', ' ', 'a, b', 'a,b', 'a b', 'a\tb', 'user@a', 'user:pass@a', 'a/p', 'a?q', 'a#f', 'a\\b'],
    ...['a"b', 'a<b', 'a|b', 'a^b', 'a`b', 'a{b}', 'caf\xe9', 'a\xa0', 'a\0', 'a\r', 'a\n', 'a:b'],
    ...['a:80:80', 'a:-1', 'a:+80', 'a: 80', 'a:8a', 'a:65536', 'a:000080', ':80', ':', '::1', '['],
    ...[']', '[]', '[]:80', '[::1', '[::1]a', '[::1]:80:80', '[::1]@a', '[:::1]', '[1]', '[.]'],
    ...['[::g]', '[1:2:3:4:5:6:7:8:9]', '[127.0.0.1]', '[fe80::1%eth0]', '[fe80::1%25eth0]', '[v1.a]'],
    ...['[[::1]]', 'a[::1]'],
  ])
    t.equal(isHost(host), false, JSON.stringify(host))
})
