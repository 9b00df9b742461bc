-- What a control leaves to do after its jobs.
if #done > 0 then
  flush_endings()
  trim_events(call('HGET', P .. K.meta, F.max_events))
  mark_ready()
  mark_due()
end
local answer = {done, asked, refused}
remember(answer)
return answer
