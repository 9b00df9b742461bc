-- How a job stands among the parked ones of its group; `kind` is w, or s for one that has stalled and must run alone.
local function parked_as(name, order, priority, kind, id)
  return string.format('%s\1%07d%017.0f%s%s', name, as_number(priority, N.lowest_priority) or 0, as_number(order) or 0, kind, id)
end
