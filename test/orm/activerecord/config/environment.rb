# frozen_string_literal: true

ENV["RAILS_ENV"] ||= "development"

require "active_record"
require "active_support/all"
require "active_support/configuration_file"

ActiveRecord::Base.configurations =
  ActiveSupport::ConfigurationFile.parse(File.join(__dir__, "database.yml"))
ActiveRecord::Base.establish_connection(ENV["RAILS_ENV"].to_sym)

ActiveRecord::Base.belongs_to_required_by_default = true # the default of Rails

# In Rails: config.active_record.schema_format = :sql or :ruby (the default).
active_record = ActiveRecord.respond_to?(:schema_format=) ? ActiveRecord : ActiveRecord::Base
active_record.schema_format = ENV.fetch("SCHEMA_FORMAT", "ruby").to_sym

# Load all models now: without Rails there is no autoloading.
Dir[File.join(__dir__, "../app/models/{application_record,concerns/*,*}.rb")].each { |file| require file }
