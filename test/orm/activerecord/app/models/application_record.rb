# frozen_string_literal: true

class ApplicationRecord < ActiveRecord::Base
  self.abstract_class = true

  # Retries the block after a serialization failure (SQLSTATE 40001).  An upsert fails this way
  # if its document expires during the upsert.  Does not retry inside an open transaction,
  # because the whole transaction must be retried.
  def self.retrying(tries: 3)
    nested = connection.transaction_open?
    yield
  rescue ActiveRecord::SerializationFailure
    raise if nested || (tries -= 1).zero?

    retry
  end
end
