# frozen_string_literal: true

class CreateCarts < ActiveRecord::Migration[6.1]
  def change
    create_table :carts do |t|
      t.jsonb :data, null: false, default: {}
      t.integer :lock_version, null: false, default: 0
      t.timestamps
    end

    create_table :cart_items do |t|
      # Without on_delete, a live item would keep its expired cart on disk.
      t.references :cart, null: false, foreign_key: { on_delete: :cascade }
      t.jsonb :data, null: false, default: {}
      t.timestamps
    end

    reversible do |direction|
      direction.up do
        execute "SELECT ttl_docs.adopt('carts', 86400)"
        execute "SELECT ttl_docs.adopt('cart_items', 900)"
      end
    end
  end
end
