-- fold: adds refused duplicates to the rows of their keys, but of those that somebody is just changing; so many in one
-- bite.
-- binds: :limit
-- guard: key
-- differs from sqlite: has no counterpart there, where the key's row counts them at once
with some_of_them as (
    select ctid as place, key
      from hapax.duplicates
     limit 10000),
due as (
    select keys.key
      from hapax.keys
     where keys.key in (select distinct some_of_them.key from some_of_them limit :limit)
       for update skip locked),
gone as (
    delete from hapax.duplicates
     using due, some_of_them
     where duplicates.ctid = some_of_them.place
       and some_of_them.key = due.key
    returning duplicates.key, duplicates.at)
update hapax.keys
   set refused = keys.refused + more.refused, last_refused_at = greatest(keys.last_refused_at, more.at)
  from (select key, count(*) as refused, max(at) as at from gone group by key) as more
 where keys.key = more.key
