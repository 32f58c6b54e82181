# frozen_string_literal: true

# For models of collections.  The document is the column "data".
module Expiring
  extend ActiveSupport::Concern

  included do
    # The server writes these.  _ts, the time of the last write, can be read.
    self.ignored_columns += %w[_ttl _slot]
    attr_readonly :_ts

    # The document's own time to live, in seconds; -1 is forever, nil is the collection's default.
    store_accessor :data, :ttl
  end
end
