# frozen_string_literal: true

# Each says itself how long it lives.
class Token < ApplicationRecord
  include Expiring

  validates :code, uniqueness: true
end
