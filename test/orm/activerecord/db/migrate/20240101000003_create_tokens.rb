# frozen_string_literal: true

class CreateTokens < ActiveRecord::Migration[6.1]
  def change
    create_table :tokens do |t|
      t.string :code, null: false, index: { unique: true }
      t.jsonb :data, null: false, default: {}
      # With defaults, because upsert_all and insert_all of ActiveRecord 6.1 do not set timestamps.
      t.timestamps default: -> { "CURRENT_TIMESTAMP" }
    end

    reversible do |direction|
      direction.up { execute "SELECT ttl_docs.adopt('tokens', -1)" }
    end
  end
end
