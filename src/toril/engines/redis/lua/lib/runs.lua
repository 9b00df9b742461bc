-- A run record as it was packed: fourteen values, false where there is none. A move once left values out instead, and such
-- a record comes out of cmsgpack as a table with holes, at which Redis would cut the answer off.
local function unpack_run(packed)
  local run = cmsgpack.unpack(packed)
  for n = 1, 14 do run[n] = run[n] or false end
  return run
end
