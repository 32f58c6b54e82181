# frozen_string_literal: true

require "active_record/connection_adapters/postgresql_adapter"

# Makes db/schema.rb call adopt() for collections, instead of listing the columns that
# adopt() adds.
module CollectionSchemaDumper
  OUR_SCHEMA = /^\s+create_schema "ttl_docs(_internal)?"/.freeze
  SYSTEM_COLUMN = /^\s+t\.\w+ "_(ts|ttl|slot)"/.freeze
  PURGE_INDEX = /^\s+t\.index \["_slot"\]/.freeze
  # The application's own indexes on system columns are created after adopt() adds the columns.
  LATER_INDEX = /^\s+t\.index (?=.*\b_(ts|ttl|slot)\b)/.freeze

  private

  # ActiveRecord lists schemas since 7.1; leave out those that the extension creates.
  def schemas(stream)
    stream.print(*lines_of { |definition| super(definition) }.grep_v(OUR_SCHEMA))
  end

  def table(name, stream)
    collection = collections[name]
    return super unless collection

    lines = lines_of { |definition| super(name, definition) }.grep_v(SYSTEM_COLUMN).grep_v(PURGE_INDEX)
    later, now = lines.partition { |line| line.match?(LATER_INDEX) }
    stream.print(*now)
    stream.puts "  execute #{adopt(collection).inspect}"
    later.each { |line| stream.print line.sub(LATER_INDEX, "  add_index #{name.inspect}, ") }
    stream.puts
  end

  def lines_of(&dump)
    StringIO.new.tap(&dump).string.lines
  end

  def adopt(collection)
    table, default_ttl, document, indexing = collection.map { |value| @connection.quote(value) }
    "SELECT ttl_docs.adopt(#{table}, #{default_ttl}, #{document}, indexing => #{indexing})"
  end

  # Returns the settings of each collection by table name.
  def collections
    return {} unless @connection.extension_enabled?("ttl_docs")

    @collections ||= @connection.select_rows(<<~SQL).to_h { |name, *settings| [name, settings] }
      SELECT relname, collection::text, default_ttl, doc_column, indexing
        FROM ttl_docs.collections JOIN pg_class ON pg_class.oid = collection
       WHERE pg_table_is_visible(collection)
    SQL
  end
end

ActiveRecord::ConnectionAdapters::PostgreSQL::SchemaDumper.prepend(CollectionSchemaDumper)
