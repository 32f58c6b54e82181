# frozen_string_literal: true

# db/structure.sql contains the collections.  These tasks make it portable between machines.

# Only its owner may comment on the extension, and a superuser owns it.
ActiveRecord::Tasks::DatabaseTasks.structure_dump_flags = ["--no-comments"]

# Removes values that differ between dumps or databases, so that git shows only real changes.
# A new database does not need the floors: they keep documents expired that had expired
# before the DefaultTTL was raised.
Rake::Task["db:schema:dump"].enhance do
  file = ENV["SCHEMA"] || File.join(ActiveRecord::Tasks::DatabaseTasks.db_dir, "structure.sql")
  next unless File.exist?(file)

  dump = File.read(file).gsub(/^\\(un)?restrict .*\n/, "")
  dump.gsub!(/^SECURITY LABEL FOR ttl_docs .*/) do |label|
    label.gsub(/"(database|table)": \d+/, '"\1": 0').gsub(/"(\w+_floor)": "[^"]*"/, '"\1": null')
         .sub('"restored": true, ', "")
  end
  File.write(file, dump)
end

# Documents of a restored collection expire, but the purge is on hold until resume_purge().
Rake::Task["db:schema:load"].enhance do
  ActiveRecord::Base.connection.execute <<~SQL
    SELECT ttl_docs.resume_purge(collection) FROM ttl_docs.collections WHERE holds = '{restored}'
  SQL
end
