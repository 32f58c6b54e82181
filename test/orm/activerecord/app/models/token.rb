# frozen_string_literal: true

# Each token has its own ttl.
class Token < ApplicationRecord
  include Expiring

  validates :code, uniqueness: true
end
