# frozen_string_literal: true

# A reservation, which is shorter than the life of a cart.  Each change of an item keeps
# its cart alive.
class CartItem < ApplicationRecord
  include Expiring

  belongs_to :cart, touch: true
end
