-- A page of a job's rows, in the order of their numbers.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the job's key, how many, the number of the last row of the page before
-- Returns number, key, text each; 1 if there are more
-- Events  none
-- uses steps
local most, last, found, bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), {}, 0
for _, row in ipairs(steps.all(ARGV[2])) do
  if row[1] > last then
    if #found >= most or bytes > N.page then return {found, 1} end
    found[#found + 1], bytes = row, bytes + #row[2] + #row[3]
  end
end
return {found, 0}
