package holdfast.state

/**
 * What has to happen in one step, as Redis runs it.
 *
 * The keys of a store `S`, all in one slot by its braces:
 *
 *  - `S`: a hash. `version` is the newest, `run` the query run that may write, `retired` the runs before it,
 *    `reached` the version that the run's newest batch began with, `next` the last attempt's number, `fields`
 *    how many fields there are, and `plan` the work that a commit has decided and nobody has finished. For
 *    readers without a checkpoint: `keySchema` and `valueSchema` are Spark's JSON, `encoder` is `plain` or
 *    `prefix:` and the number of the key's columns that all rows of a field have in common, and `layout`.
 *  - `S:v`: a hash, from version to the attempt that made it.
 *  - `S:g`: a hash of what is forgotten and not yet deleted.
 *  - `S:o`: a hash of the attempts that have not ended, from number to the version they began with.
 *  - `S:d:B`: the data of bucket B: a hash from field to `\1` and its value.
 *  - `S:u:A:B`: what attempt A's changes in a bucket have replaced: the same, or nothing where nothing was.
 *  - `S:r:A:B`: changes that attempt A has staged, not yet in the data: the same, or nothing for a deletion.
 *
 * The names of a query's stores are in the set `<prefix>:stores:<query id>`. The hash `<prefix>:query:<query id>`
 * has the `batch` that was committed last, its `run`, and the `generation` of the stores in use: the word behind
 * the store in `<prefix>:{<query id>/<operator>/<partition>/<store>/<generation>}`, and nothing where there is none.
 *
 * A commit decides by setting `version` and `plan`, say `7,6;9`: undo attempts 7 and 6, then do 9. From that
 * moment on readers see the new version. The buckets follow one by one, by whoever comes first.
 */
private[state] object RedisScripts {

  private val common =
    """local head = KEYS[1]
      |local function plan_of(text)
      |  local undo, redo = {}, nil
      |  local cut = string.find(text, ';', 1, true)
      |  for number in string.gmatch(string.sub(text, 1, cut - 1), '%d+') do undo[#undo + 1] = number end
      |  redo = string.sub(text, cut + 1)
      |  return undo, redo
      |end
      |local function slices(list, size, use)
      |  local first = 1
      |  while first <= #list do
      |    local last = math.min(first + size - 1, #list)
      |    use(first, last)
      |    first = last + 1
      |  end
      |end
      |""".stripMargin

  /** Names of the hashes to look into before the data, in order. Arguments: version, attempt or nothing. */
  private val layers =
    """local function layers(version, attempt, bucket)
      |  local names = {}
      |  local found = redis.call('HMGET', head, 'version', 'plan')
      |  local newest = tonumber(found[1] or '-1')
      |  if newest < 0 then return nil, 'absent' end
      |  if not redis.call('HGET', head .. ':v', version) then
      |    return nil, 'missing'
      |  end
      |  if attempt ~= '' then names[#names + 1] = head .. ':r:' .. attempt .. ':' .. bucket end
      |  for later = tonumber(version) + 1, newest do
      |    names[#names + 1] = head .. ':u:' .. redis.call('HGET', head .. ':v', tostring(later)) .. ':' .. bucket
      |  end
      |  if found[2] and found[2] ~= '' then
      |    local undo, redo = plan_of(found[2])
      |    if tonumber(version) == newest then names[#names + 1] = head .. ':r:' .. redo .. ':' .. bucket end
      |    for i = 1, #undo do names[#names + 1] = head .. ':u:' .. undo[i] .. ':' .. bucket end
      |  end
      |  names[#names + 1] = head .. ':d:' .. bucket
      |  return names, newest
      |end
      |""".stripMargin

  /** Arguments: version, run. Returns a word and what belongs to it. */
  val begin: String = common +
    """local version, run = ARGV[1], ARGV[2]
      |local now = redis.call('HMGET', head, 'version', 'run', 'retired', 'reached', 'plan')
      |if now[5] and now[5] ~= '' then return {'unfinished', now[5]} end
      |if not now[1] then
      |  if version ~= '0' then return {'absent'} end
      |  redis.call('HSET', head, 'version', '0', 'run', run, 'retired', '', 'reached', '0', 'next', '0',
      |    'fields', '0', 'plan', '')
      |  redis.call('HSET', head .. ':v', '0', '0')
      |  now = {'0', run, '', '0', ''}
      |end
      |local base = redis.call('HGET', head .. ':v', version)
      |if not base then return {'missing', now[1]} end
      |if now[2] ~= run and string.find(now[3], run, 1, true) then return {'retired', now[2]} end
      |if tonumber(version) < tonumber(now[4]) then return {'over', now[4]} end
      |if now[2] ~= run then
      |  redis.call('HSET', head, 'run', run, 'retired', string.sub(now[2] .. ' ' .. now[3], 1, 4000))
      |end
      |redis.call('HSET', head, 'reached', version)
      |local attempt = redis.call('HINCRBY', head, 'next', 1)
      |redis.call('HSET', head .. ':o', attempt, version)
      |return {'begun', tostring(attempt), base}
      |""".stripMargin

  /** Arguments: version, attempt or nothing, bucket, fields. Returns a value for each of them. */
  val read: String = common + layers +
    """local names, why = layers(ARGV[1], ARGV[2], ARGV[3])
      |if not names then return redis.error_reply('HOLDFAST ' .. why) end
      |local fields, values = {}, {}
      |for i = 4, #ARGV do fields[i - 3] = ARGV[i] end
      |local last = #names
      |if last > 1 then
      |  for i = 1, last - 1 do if redis.call('EXISTS', names[i]) == 0 then names[i] = false end end
      |end
      |slices(fields, 1000, function(first, final)
      |  local wanted = {unpack(fields, first, final)}
      |  local found = redis.call('HMGET', names[last], unpack(wanted))
      |  for i = last - 1, 1, -1 do
      |    if names[i] then
      |      local over = redis.call('HMGET', names[i], unpack(wanted))
      |      for j = 1, #wanted do if over[j] then found[j] = over[j] end end
      |    end
      |  end
      |  for j = 1, #wanted do values[first + j - 1] = found[j] end
      |end)
      |return values
      |""".stripMargin

  /** Arguments: version, attempt or nothing, bucket. Returns the hashes of a bucket, the first one counts. */
  val scan: String = common + layers +
    """local names, why = layers(ARGV[1], ARGV[2], ARGV[3])
      |if not names then return redis.error_reply('HOLDFAST ' .. why) end
      |local all = {}
      |for i = 1, #names do all[i] = redis.call('HGETALL', names[i]) end
      |return all
      |""".stripMargin

  /** Arguments: attempt, the version it began with, its base, run. Returns a word and what belongs to it. */
  val decide: String = common +
    """local attempt, version, base, run = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
      |local now = redis.call('HMGET', head, 'version', 'run', 'reached', 'plan')
      |local made = tostring(tonumber(version) + 1)
      |if not now[1] then return {'absent'} end
      |if redis.call('HGET', head .. ':v', made) == attempt then return {'decided', now[4]} end
      |if now[4] ~= '' then return {'unfinished', now[4]} end
      |if now[2] ~= run then return {'retired', now[2]} end
      |if now[3] ~= version then return {'over', now[3]} end
      |if redis.call('HGET', head .. ':v', version) ~= base then return {'missing', now[1]} end
      |if redis.call('HDEL', head .. ':o', attempt) == 0 then return {'discarded'} end
      |local undo = {}
      |for later = tonumber(now[1]), tonumber(made), -1 do
      |  undo[#undo + 1] = redis.call('HGET', head .. ':v', tostring(later))
      |  redis.call('HDEL', head .. ':v', tostring(later))
      |end
      |local plan = table.concat(undo, ',') .. ';' .. attempt
      |redis.call('HSET', head .. ':v', made, attempt)
      |redis.call('HSET', head, 'version', made, 'plan', plan)
      |return {'decided', plan}
      |""".stripMargin

  /** Give up an attempt, unless a commit has decided it. Arguments: attempt. Returns whether it was given up. */
  val giveUp: String =
    """local head, attempt = KEYS[1], ARGV[1]
      |if redis.call('HDEL', head .. ':o', attempt) == 0 then return 0 end
      |redis.call('HSET', head .. ':g', ':r:' .. attempt .. ':', '')
      |return 1
      |""".stripMargin

  /** Do one bucket's part of a plan. Arguments: the plan, bucket. */
  val follow: String = common +
    """local plan, bucket = ARGV[1], ARGV[2]
      |if redis.call('HGET', head, 'plan') ~= plan then return 0 end
      |local undo, redo = plan_of(plan)
      |local data, more = head .. ':d:' .. bucket, 0
      |local function put(changes)
      |  local set, gone = {}, {}
      |  for i = 1, #changes, 2 do
      |    if changes[i + 1] == '' then
      |      gone[#gone + 1] = changes[i]
      |    else
      |      set[#set + 1] = changes[i]
      |      set[#set + 1] = changes[i + 1]
      |    end
      |  end
      |  slices(set, 2000, function(first, last)
      |    more = more + redis.call('HSET', data, unpack(set, first, last))
      |  end)
      |  slices(gone, 2000, function(first, last)
      |    more = more - redis.call('HDEL', data, unpack(gone, first, last))
      |  end)
      |end
      |for i = 1, #undo do
      |  local name = head .. ':u:' .. undo[i] .. ':' .. bucket
      |  local former = redis.call('HGETALL', name)
      |  if #former > 0 then
      |    put(former)
      |    redis.call('DEL', name)
      |  end
      |end
      |local name = head .. ':r:' .. redo .. ':' .. bucket
      |local changes = redis.call('HGETALL', name)
      |if #changes > 0 then
      |  slices(changes, 2000, function(first, last)
      |    local fields, former = {}, {}
      |    for i = first, last, 2 do fields[#fields + 1] = changes[i] end
      |    local found = redis.call('HMGET', data, unpack(fields))
      |    for i = 1, #fields do
      |      former[2 * i - 1] = fields[i]
      |      former[2 * i] = found[i] or ''
      |    end
      |    redis.call('HSET', head .. ':u:' .. redo .. ':' .. bucket, unpack(former))
      |  end)
      |  put(changes)
      |  redis.call('DEL', name)
      |end
      |if more ~= 0 then redis.call('HINCRBY', head, 'fields', more) end
      |return more
      |""".stripMargin

  /** Say that all buckets have followed a plan. Arguments: the plan. Returns how many fields there are. */
  val finish: String = common +
    """if redis.call('HGET', head, 'plan') == ARGV[1] then redis.call('HSET', head, 'plan', '') end
      |return redis.call('HGET', head, 'fields')
      |""".stripMargin

  /**
   * Forget old versions and dead attempts. Arguments: how many versions before the newest are kept.
   *
   * What is forgotten here is read by nobody any more. Returns the names of the hashes to delete, without their
   * buckets; they stay in `S:g` until that has been done.
   */
  val forget: String = common +
    """local now = redis.call('HMGET', head, 'version', 'reached', 'plan', 'floor')
      |if not now[1] or now[3] ~= '' then return {} end
      |local oldest, floor = tonumber(now[1]) - tonumber(ARGV[1]), tonumber(now[4] or '0')
      |if oldest > floor then
      |  local versions = redis.call('HGETALL', head .. ':v')
      |  for i = 1, #versions, 2 do
      |    local version = tonumber(versions[i])
      |    if version <= oldest then
      |      if version > floor then redis.call('HSET', head .. ':g', ':u:' .. versions[i + 1] .. ':', '') end
      |      if version < oldest then redis.call('HDEL', head .. ':v', versions[i]) end
      |    end
      |  end
      |  redis.call('HSET', head, 'floor', tostring(oldest))
      |end
      |local open = redis.call('HGETALL', head .. ':o')
      |for i = 1, #open, 2 do
      |  if tonumber(open[i + 1]) < tonumber(now[2]) then
      |    redis.call('HSET', head .. ':g', ':r:' .. open[i] .. ':', '')
      |    redis.call('HDEL', head .. ':o', open[i])
      |  end
      |end
      |return redis.call('HKEYS', head .. ':g')
      |""".stripMargin
}
