-- A job's parent may be in another queue. What becomes of a child is written to it by the step that ends the child. Where
-- the parent's own keys are of wrong types nothing is: `try` leaves those as they are.
local PREFIX, try = W:sub(1, -8), redis.pcall
-- include freeing
local told = {}

-- At most so many bytes, and no half character.
local function cut(text, most)
  if #text <= most then return text end
  return (text:sub(1, most):gsub('[\128-\191]*$', ''):gsub('[\192-\255]$', ''))
end

-- Whose child a job is, from its field; nil if it is nobody's.
local function link_of(text)
  local fine, link = pcall(cjson.decode, text or '')
  if not fine or type(link) ~= 'table' or type(link.queueKey) ~= 'string' or link.id == nil then return nil end
  link.id, link.base = tostring(link.id), link.queueKey .. ':'
  link.key, link.plain = link.base .. link.id, not (link.fpof or link.cpof or link.idof or link.rdof)
  return link
end

-- Where a job's dead letter lies, from the job's own key; and its id.
local function letter_key(key)
  local queue, id = key:sub(#PREFIX + 1):match('^([^:]*):(.*)$')
  local escaped = (id or ''):gsub('%%', '%%25'):gsub(':', '%%3A')
  local letter = (queue or '') .. '/' .. escaped
  return PREFIX .. N.dead_letters .. ':' .. letter, letter
end

local function go_on(link)
  if try('SCARD', link.key .. K.dependencies) == 0 then free(link, K.waiting_children, 'waiting-children') end
end

-- A parent fails for its child: by whoever claims it next, as in BullMQ, so that it fails in its own queue.
local function doom(link, reason)
  if try('EXISTS', link.key) ~= 1 then return end
  for _, name in ipairs({K.completed, K.failed}) do
    if try('ZSCORE', link.base .. name, link.id) then return end
  end
  try('HSET', link.key, F.deferred, reason, F.delay, 0)
  if not free(link, K.waiting_children, 'waiting-children') then free(link, K.delayed, 'delayed') end
end

local tell_parent
do
local function note_end(key, link, child, ending, text)
  if ending == 'completed' then
    try('HSET', key .. K.processed, child, text)
  elseif ending == 'failed' and link.fpof then
    try('ZADD', key .. K.unsuccessful, NOW, child)
  elseif ending == 'failed' and (link.cpof or link.idof) then
    try('HSET', key .. K.child_failures, child, text)
  end
end

-- `ending` is completed, failed or removed; `stays` says that a failed child can still be run again. A parent that is a dead
-- letter knows of it too: it may be run again.
function tell_parent(child, field, ending, text, stays)
  local link = link_of(field)
  local failed = ending == 'failed'
  if not link or (failed and link.plain and stays) then return end
  if try('SREM', link.key .. K.dependencies, child) ~= 1 then
    local letter = letter_key(link.key)
    if try('SREM', letter .. K.dependencies, child) == 1 then note_end(letter, link, child, ending, text) end
    return
  end
  note_end(link.key, link, child, ending, text)
  if failed and link.fpof then
    return doom(link, 'child ' .. child:sub(#PREFIX + 1) .. ' failed: ' .. cut(text, 1000))
  elseif failed and link.cpof then
    return free(link, K.waiting_children, 'waiting-children')
  end
  go_on(link)
end
end
