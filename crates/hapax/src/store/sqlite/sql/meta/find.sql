-- find: what the file says of itself.
-- binds: none
select version, min_program, fence, boot_id
  from hapax_meta
 where one = 1
