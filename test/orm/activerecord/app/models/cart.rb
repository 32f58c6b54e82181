# frozen_string_literal: true

# Has a lock_version, so that a save after it expired raises ActiveRecord::StaleObjectError.
class Cart < ApplicationRecord
  include Expiring

  has_many :items, class_name: "CartItem"
end
