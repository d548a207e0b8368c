-- of_claim: what still belongs to a claim.
-- binds: :instance, :claim
select id
  from hapax.jobs
 where state = 'running'
   and owner = :instance
   and claim = :claim
 order by id
