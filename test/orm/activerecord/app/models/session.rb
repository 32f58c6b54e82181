# frozen_string_literal: true

# Lives for half an hour after it was last used: see touch.
class Session < ApplicationRecord
  include Expiring

  belongs_to :user
end
