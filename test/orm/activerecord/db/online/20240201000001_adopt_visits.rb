# frozen_string_literal: true

# Makes the large table visits a collection, while the application uses it.
class AdoptVisits < ActiveRecord::Migration[6.1]
  # adopt_concurrently() commits several times, so it cannot run in a transaction.
  disable_ddl_transaction!

  def up
    execute "CALL ttl_docs.adopt_concurrently('visits', 1800)"
  end

  def down
    execute "CALL ttl_docs.purge('visits')"
    execute "SELECT ttl_docs.release('visits')"
  end
end
