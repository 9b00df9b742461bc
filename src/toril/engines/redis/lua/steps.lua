-- A page of a job's rows, in the order of their numbers. A walk begins with the ceiling '': it leaves out what was written
-- since, so that a row that another takes the place of is not seen twice.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the job's key, how many, ceiling, the number of the last row of the page before
-- Returns the ceiling; number, key, text each; 1 if there are more
-- Events  none
-- uses steps
local most, ceiling, last, found, bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), {}, 0
local rows = steps.all(ARGV[2])
ceiling = ceiling or (rows[#rows] or {0})[1]
for i = 1, #rows do
  local row = rows[i]
  if row[1] > last and row[1] <= ceiling then
    if #found >= most or bytes > N.page then return {ceiling, found, 1} end
    found[#found + 1], bytes = row, bytes + #row[2] + #row[3]
  end
end
return {ceiling, found, 0}
