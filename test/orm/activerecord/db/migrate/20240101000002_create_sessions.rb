# frozen_string_literal: true

class CreateSessions < ActiveRecord::Migration[6.1]
  def change
    create_table :sessions do |t|
      t.references :user, null: false, foreign_key: true
      t.jsonb :data, null: false, default: {}
      t.timestamps
    end

    reversible do |direction|
      direction.up { execute "SELECT ttl_docs.adopt('sessions', 1800)" }
    end
  end
end
