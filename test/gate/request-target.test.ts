import t from 'tap'
import { originForm } from '../../src/gate/request-target.ts'

t.test('a target stays as it is, to the byte', async (t) => {
  for (const target of ['/', '/a//../b?c=%2F&d', '//host/x', '/\\@']) t.equal(originForm(target, 'h'), target)
})

t.test('the absolute form is taken where it names the very authority of Host', async (t) => {
  t.equal(originForm('http://H:80/a', 'h:80'), '/a')
  t.equal(originForm('HTTPS://h', 'h'), '/')
  t.equal(originForm('http://h?q', 'h'), '/?q')
  for (const target of ['http://other/a', 'http://h@other/', 'http://h.other/', 'ftp://h/', '*', 'h:443', ''])
    t.equal(originForm(target, 'h'), undefined, target)
  t.equal(originForm('http://h/', undefined), undefined)
})

t.test('what readers could cut differently is no target', async (t) => {
  for (const target of ['/a#b', '/a b', '/a\tb', '/a\x7f', '/a\r\n'])
    t.equal(originForm(target, 'h'), undefined, JSON.stringify(target))
})
