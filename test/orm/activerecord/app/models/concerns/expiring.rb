# frozen_string_literal: true

# For models of collections.  The document is the column "data".
module Expiring
  extend ActiveSupport::Concern

  included do
    # The server writes the system columns.  The model maps only _ts, the time of the last write.
    self.ignored_columns += %w[_ttl _slot]
    attr_readonly :_ts

    # The document's own ttl in seconds; -1 means never, nil means the DefaultTTL of the collection.
    store_accessor :data, :ttl
  end
end
