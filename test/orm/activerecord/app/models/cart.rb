# frozen_string_literal: true

# Has a lock_version, so that saving an expired cart raises ActiveRecord::StaleObjectError.
class Cart < ApplicationRecord
  include Expiring

  has_many :items, class_name: "CartItem"
end
