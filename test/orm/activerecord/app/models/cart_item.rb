# frozen_string_literal: true

# A reservation, which expires sooner than its cart.  Each change of an item restarts the
# countdown of its cart.
class CartItem < ApplicationRecord
  include Expiring

  belongs_to :cart, touch: true
end
