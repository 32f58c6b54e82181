# frozen_string_literal: true

class ApplicationRecord < ActiveRecord::Base
  self.abstract_class = true

  # Runs the block again when PostgreSQL says that this may help (SQLSTATE 40001), as for an
  # upsert of a document that expires at that very moment.  Within a transaction it does not:
  # all of that has to be tried again.
  def self.retrying(tries: 3)
    nested = connection.transaction_open?
    yield
  rescue ActiveRecord::SerializationFailure
    raise if nested || (tries -= 1).zero?

    retry
  end
end
