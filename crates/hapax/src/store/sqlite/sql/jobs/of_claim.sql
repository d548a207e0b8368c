-- of_claim: what still belongs to a claim.
-- binds: :instance, :claim
select id
  from hapax_jobs indexed by hapax_jobs_running
 where state = 'running'
   and owner = :instance
   and claim = :claim
 order by id
