import t from 'tap'
import { availableProcesses } from '../../src/workers/cpu-quota.ts'

t.test('workers: auto obeys the CPU quota of the own cgroup and of those above it', (t) => {
  const V2 = { '/proc/self/cgroup': '0::/\n' }
  const V1 = { '/proc/self/cgroup': '5:memory:/m\n4:cpu,cpuacct:/docker/1f\n' }
  const cpu = '/sys/fs/cgroup/cpu'
  for (const [files, expected, what] of [
    [{}, 8, 'no cgroups'],
    [V2, 8, 'the root of the host'],
    [{ ...V2, '/sys/fs/cgroup/cpu.max': 'max 100000\n' }, 8, 'no quota'],
    [{ ...V2, '/sys/fs/cgroup/cpu.max': '250000 100000\n' }, 2, '2.5 CPUs'],
    [{ ...V2, '/sys/fs/cgroup/cpu.max': '50000 100000\n' }, 1, 'half a CPU'],
    [{ ...V2, '/sys/fs/cgroup/cpu.max': '6400000 100000\n' }, 8, 'more than there are'],
    [
      { '/proc/self/cgroup': '0::/a.slice/b.service\n', '/sys/fs/cgroup/a.slice/cpu.max': '300000 100000\n' },
      3,
      'the quota of a slice',
    ],
    [
      { ...V1, [`${cpu}/cpu.cfs_quota_us`]: '-1\n', [`${cpu}/cpu.cfs_period_us`]: '100000\n' },
      8,
      'v1 without',
    ],
    [
      {
        ...V1,
        [`${cpu}/docker/1f/cpu.cfs_quota_us`]: '400000\n',
        [`${cpu}/docker/1f/cpu.cfs_period_us`]: '100000\n',
      },
      4,
      'v1 of the host',
    ],
    [
      { ...V1, [`${cpu}/cpu.cfs_quota_us`]: '200000\n', [`${cpu}/cpu.cfs_period_us`]: '100000\n' },
      2,
      'v1 in a container, where the own cgroup is the root',
    ],
  ] as const)
    t.equal(
      availableProcesses((path) => Object(files)[path], 8),
      expected,
      what,
    )
  t.ok(availableProcesses() >= 1)
  t.end()
})
