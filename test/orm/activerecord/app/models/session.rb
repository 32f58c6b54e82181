# frozen_string_literal: true

# Expires half an hour after its last touch.
class Session < ApplicationRecord
  include Expiring

  belongs_to :user
end
