# frozen_string_literal: true

# db/structure.sql has the collections.  This makes it fit for more than one machine.

# An ordinary role may not comment on an extension that a superuser has created.
ActiveRecord::Tasks::DatabaseTasks.structure_dump_flags = ["--no-comments"]

# Takes out what is different in each dump and each database, so that git shows changes only.
# (The floors are for documents that had expired before the DefaultTTL was raised.)
Rake::Task["db:schema:dump"].enhance do
  file = ENV["SCHEMA"] || File.join(ActiveRecord::Tasks::DatabaseTasks.db_dir, "structure.sql")
  next unless File.exist?(file)

  dump = File.read(file).gsub(/^\\(un)?restrict .*\n/, "")
  dump.gsub!(/^SECURITY LABEL FOR ttl_docs .*/) do |label|
    label.gsub(/"(database|table)": \d+/, '"\1": 0').gsub(/"(\w+_floor)": "[^"]*"/, '"\1": null')
  end
  File.write(file, dump)
end

# A collection that comes by a dump expires at once, but is not purged before somebody says so.
Rake::Task["db:schema:load"].enhance do
  ActiveRecord::Base.connection.execute <<~SQL
    SELECT ttl_docs.resume_purge(collection) FROM ttl_docs.collections WHERE holds = '{restored}'
  SQL
end
