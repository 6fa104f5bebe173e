"""What Redis runs for a store in one step; the stores of Spark, in `jvm/`, say how a store lies there.

`READ` and `SCAN` are the same texts there; a test compares.
"""

from __future__ import annotations

from typing import Final

from holdfast.external.store_port import BUCKETS

_LAYERS: Final = """local head = KEYS[1]
local function plan_of(text)
  local undo, redo = {}, nil
  local cut = string.find(text, ';', 1, true)
  for number in string.gmatch(string.sub(text, 1, cut - 1), '%d+') do undo[#undo + 1] = number end
  redo = string.sub(text, cut + 1)
  return undo, redo
end
local function slices(list, size, use)
  local first = 1
  while first <= #list do
    local last = math.min(first + size - 1, #list)
    use(first, last)
    first = last + 1
  end
end
local function layers(version, attempt, bucket)
  local names = {}
  local found = redis.call('HMGET', head, 'version', 'plan')
  local newest = tonumber(found[1] or '-1')
  if newest < 0 then return nil, 'absent' end
  if not redis.call('HGET', head .. ':v', version) then
    return nil, 'missing'
  end
  if attempt ~= '' then names[#names + 1] = head .. ':r:' .. attempt .. ':' .. bucket end
  for later = tonumber(version) + 1, newest do
    names[#names + 1] = head .. ':u:' .. redis.call('HGET', head .. ':v', tostring(later)) .. ':' .. bucket
  end
  if found[2] and found[2] ~= '' then
    local undo, redo = plan_of(found[2])
    if tonumber(version) == newest then names[#names + 1] = head .. ':r:' .. redo .. ':' .. bucket end
    for i = 1, #undo do names[#names + 1] = head .. ':u:' .. undo[i] .. ':' .. bucket end
  end
  names[#names + 1] = head .. ':d:' .. bucket
  return names, newest
end
"""

# Arguments: version, attempt or nothing, bucket. Returns the hashes of a bucket, the first one counts.
SCAN: Final = (
    _LAYERS
    + """local names, why = layers(ARGV[1], ARGV[2], ARGV[3])
if not names then return redis.error_reply('HOLDFAST ' .. why) end
local all = {}
for i = 1, #names do all[i] = redis.call('HGETALL', names[i]) end
return all
"""
)

# Arguments: version, attempt or nothing, bucket, fields. Returns a value for each of them.
READ: Final = (
    _LAYERS
    + """local names, why = layers(ARGV[1], ARGV[2], ARGV[3])
if not names then return redis.error_reply('HOLDFAST ' .. why) end
local fields, values = {}, {}
for i = 4, #ARGV do fields[i - 3] = ARGV[i] end
local last = #names
if last > 1 then
  for i = 1, last - 1 do if redis.call('EXISTS', names[i]) == 0 then names[i] = false end end
end
slices(fields, 1000, function(first, final)
  local wanted = {unpack(fields, first, final)}
  local found = redis.call('HMGET', names[last], unpack(wanted))
  for i = last - 1, 1, -1 do
    if names[i] then
      local over = redis.call('HMGET', names[i], unpack(wanted))
      for j = 1, #wanted do if over[j] then found[j] = over[j] end end
    end
  end
  for j = 1, #wanted do values[first + j - 1] = found[j] end
end)
return values
"""
)

# No argument. Returns nothing, or: the newest version, the number of fields, how many are there, the bytes
# that they take, the encoder, the layout, the versions with the attempts that made them. All of it is of one
# moment, so the two numbers are the same also while a commit is followed: each of its steps changes both.
LOOK: Final = f"""local head = KEYS[1]
local now = redis.call('HMGET', head, 'version', 'fields', 'encoder', 'layout')
if not now[1] then return {{}} end
local found, bytes = 0, 0
for bucket = 0, {BUCKETS - 1} do
  local data = head .. ':d:' .. bucket
  found = found + redis.call('HLEN', data)
  bytes = bytes + (redis.call('MEMORY', 'USAGE', data) or 0)
end
return {{now[1], now[2], string.format('%.0f', found), string.format('%.0f', bytes), now[3] or '',
  now[4] or '', redis.call('HGETALL', head .. ':v')}}
"""

# Put the head of a new store, after its data. Arguments: version, a word that tells this write from others,
# fields of the head with their values. Returns 0 if another write has put one. This write may come again, if
# its answer was lost.
CREATE: Final = """local head = KEYS[1]
if redis.call('EXISTS', head) == 1 then
  return redis.call('HGET', head, 'written') == ARGV[2] and 1 or 0
end
redis.call('HSET', head .. ':v', ARGV[1], '0')
redis.call('HSET', head, 'version', ARGV[1], 'floor', ARGV[1], 'reached', ARGV[1], 'run', '', 'retired', '',
  'next', '0', 'plan', '', 'written', ARGV[2], unpack(ARGV, 3))
return 1
"""

# Delete what was written to a new store that no query has begun on. Returns 0 if one has.
CLEAR: Final = f"""local head = KEYS[1]
local run = redis.call('HGET', head, 'run')
if run and run ~= '' then return 0 end
redis.call('DEL', head, head .. ':v')
for bucket = 0, {BUCKETS - 1} do redis.call('UNLINK', head .. ':d:' .. bucket) end
return 1
"""
