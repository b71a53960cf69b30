/**
 * Reads the text of a credentials file.
 *
 * In: YAML 1.2 (core schema). Out: accounts, or every problem with its line and column, none of which repeats anything
 * of the file. A long list is read account by account, so that nobody waits for it: all at once, YAML holds the
 * process for nine seconds, and a gigabyte, for 100,000 credentials. What cannot be cut may therefore be long only in
 * the plain form.
 *
 * @module
 */
import { inSlices } from '../files/in-slices.ts'
import { cutBlockList, type ListMember } from '../yaml/block-list.ts'
import type { Account } from './accounts.ts'
import { readPlainAccount } from './accounts-plain.ts'
import { ACCOUNT_TWICE } from './accounts-schema.ts'
import { readAccountsYaml, readAccountYaml, type YamlAccounts } from './accounts-yaml.ts'

/** The outcome of reading; each problem is one line, `line:column: path what`. */
export type ParsedAccounts =
  | { readonly ok: true; readonly accounts: readonly Account[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** How many characters of a file that is no block list are read, which is done at once. */
const MOST_WHOLE = 65_536
/** How many characters of one account are read where it is not in the plain form, which is done at once. */
const MOST_OF_ACCOUNT = 16_384

const PLAIN_FORM = 'the plain form that `credentials add` writes'

interface Findings {
  readonly accounts: Account[]
  readonly problems: string[]
}

/** Reads the text of a credentials file. */
export async function parseAccountsText(text: string): Promise<ParsedAccounts> {
  const { accounts, problems } = (await inSlices(readCut(text))) ?? readWhole(text)
  return problems.length === 0 ? { ok: true, accounts } : { ok: false, problems }
}

function readWhole(text: string): Findings | YamlAccounts {
  if (text.length <= MOST_WHOLE) return readAccountsYaml(text)
  const problem = `1:1: is longer than ${MOST_WHOLE} characters, and so must be a block list of accounts in ${PLAIN_FORM}`
  return { accounts: [], problems: [problem] }
}

/** Reads a block list. Nothing: the text has another form. */
function* readCut(text: string): Generator<unknown, Findings | undefined> {
  const findings: Findings = { accounts: [], problems: [] }
  const named = new Set<string>()
  const members = cutBlockList(text, 'accounts')
  let index = 0
  let step = members.next()
  while (step.done !== true) {
    if (step.value !== undefined) {
      const { accounts, problems, names } = yield* readMember(step.value, index)
      for (const account of accounts) findings.accounts.push(account)
      for (const problem of problems) findings.problems.push(problem)
      for (const { accountId, place } of names) {
        if (named.has(accountId)) {
          findings.problems.push(`${place}: accounts[${index}].accountId ${ACCOUNT_TWICE}`)
        } else named.add(accountId)
      }
      index++
    }
    yield
    step = members.next()
  }
  return step.value ? findings : undefined
}

function* readMember({ text, line }: ListMember, index: number): Generator<unknown, YamlAccounts> {
  const plain = yield* readPlainAccount(text)
  if (plain.ok) {
    const place = `${line + plain.line - 1}:${plain.column}`
    return { accounts: [plain.account], problems: [], names: [{ accountId: plain.account.accountId, place }] }
  }
  if (text.length <= MOST_OF_ACCOUNT) return readAccountYaml(text, { line, index })
  const problem = `${line + plain.line - 1}:1: accounts[${index}] is longer than ${MOST_OF_ACCOUNT} characters, and so must be in ${PLAIN_FORM}, with valid values; here it is not`
  return { accounts: [], problems: [problem], names: [] }
}
