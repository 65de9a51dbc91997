package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

const schemaHeader = "__value_schema_id"

// exchange says where the registry and the log are, and what to write.
type exchange struct {
	Registry, User, Bootstrap string
	Expected                  int
	Cases                     []struct {
		Name, Type, Text, Message string
		Value                     json.RawMessage
		References                []sr.SchemaReference
	}
}

// schemaUser writes and reads with franz-go's client of a registry; what it knows of a schema, it
// knows from the registry: its `.proto` files are compiled here.
type schemaUser struct {
	ctx      context.Context
	registry *sr.Client
	log      *kgo.Client
	given    exchange
	codecs   map[int]*codec
}

// codec turns JSON into bytes of a schema and back.
type codec struct {
	encode func(value []byte, message string) (data []byte, index []int, err error)
	decode func(data []byte, index []int) (any, error)
}

func newSchemaUser(ctx context.Context, file string, more ...kgo.Opt) (*schemaUser, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	user := &schemaUser{ctx: ctx, codecs: map[int]*codec{}}
	if err := json.Unmarshal(text, &user.given); err != nil {
		return nil, err
	}
	options := []sr.ClientOpt{sr.URLs(user.given.Registry)}
	if name, secret, is := strings.Cut(user.given.User, ":"); is {
		options = append(options, sr.BasicAuth(name, secret))
	}
	if user.registry, err = sr.NewClient(options...); err != nil {
		return nil, err
	}
	topics := []string{}
	for _, one := range user.given.Cases {
		topics = append(topics, one.Name)
	}
	user.log, err = franz(user.given.Bootstrap, nil, append(more, kgo.ConsumeTopics(topics...))...)
	return user, err
}

func schemasWrite(ctx context.Context, file string, _ *login) (any, error) {
	user, err := newSchemaUser(ctx, file, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	if err != nil {
		return nil, err
	}
	defer user.log.Close()
	types := map[string]sr.SchemaType{"AVRO": sr.TypeAvro, "JSON": sr.TypeJSON, "PROTOBUF": sr.TypeProtobuf}
	for _, one := range user.given.Cases {
		schema := sr.Schema{Schema: one.Text, Type: types[one.Type], References: one.References}
		made, err := user.registry.CreateSchema(ctx, one.Name+"-value", schema)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		codec, err := user.codec(made.ID, made.Schema)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		data, index, err := codec.encode(one.Value, one.Message)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		guid, err := hex.DecodeString(strings.ReplaceAll(made.GUID, "-", ""))
		if err != nil {
			return nil, err
		}
		// sr writes ids before the data; with an id in a header, the index of the message is there.
		serde := sr.NewSerde()
		serde.Register(made.ID, data, sr.Index(index...), sr.EncodeFn(func(any) ([]byte, error) { return data, nil }))
		prefixed, err := serde.Encode(data)
		if err != nil {
			return nil, err
		}
		number := len(prefixed) - len(data)
		header := append(append([]byte{1}, guid...), prefixed[5:number]...)
		err = user.log.ProduceSync(ctx,
			&kgo.Record{Topic: one.Name, Key: []byte("go prefix"), Value: prefixed},
			&kgo.Record{Topic: one.Name, Key: []byte("go header"), Value: data,
				Headers: []kgo.RecordHeader{{Key: schemaHeader, Value: header}}},
		).FirstErr()
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func schemasRead(ctx context.Context, file string, _ *login) (any, error) {
	user, err := newSchemaUser(ctx, file)
	if err != nil {
		return nil, err
	}
	defer user.log.Close()
	seen := map[string]map[string]any{}
	for left := user.given.Expected; left > 0; {
		fetches := user.log.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		for _, record := range fetches.Records() {
			value, err := user.value(record)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", record.Topic, record.Key, err)
			}
			if seen[record.Topic] == nil {
				seen[record.Topic] = map[string]any{}
			}
			seen[record.Topic][string(record.Key)] = value
			left--
		}
	}
	return seen, nil
}

func (user *schemaUser) value(record *kgo.Record) (any, error) {
	serde, data := sr.NewSerde(), record.Value
	var id int
	var err error
	var schema sr.Schema
	for _, header := range record.Headers {
		if header.Key == schemaHeader {
			found, err := user.registry.SchemaByGUID(user.ctx, formatGUID(header.Value[1:17]))
			if err != nil {
				return nil, err
			}
			ids, err := user.registry.SchemaIDsByGUID(user.ctx, formatGUID(header.Value[1:17]))
			if err != nil {
				return nil, err
			}
			id, schema = ids[0].ID, found.Schema
			data = append(header.Value[17:len(header.Value):len(header.Value)], data...)
		}
	}
	if id == 0 {
		if id, data, err = serde.DecodeID(data); err != nil {
			return nil, err
		}
		if schema, err = user.registry.SchemaByID(user.ctx, id); err != nil {
			return nil, err
		}
	}
	var index []int
	if schema.Type == sr.TypeProtobuf {
		if index, data, err = serde.DecodeIndex(data, 100); err != nil {
			return nil, err
		}
	}
	codec, err := user.codec(id, schema)
	if err != nil {
		return nil, err
	}
	return codec.decode(data, index)
}

func formatGUID(raw []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

func (user *schemaUser) codec(id int, schema sr.Schema) (*codec, error) {
	if known := user.codecs[id]; known != nil {
		return known, nil
	}
	made, err := jsonCodec(), error(nil)
	switch schema.Type {
	case sr.TypeAvro:
		made, err = user.avroCodec(schema)
	case sr.TypeProtobuf:
		made, err = user.protobufCodec(schema)
	}
	user.codecs[id] = made
	return made, err
}

// referred calls `use` with the name and the text of all that a schema refers to, dependencies first.
func (user *schemaUser) referred(schema sr.Schema, use func(name, text string) error) error {
	for _, each := range schema.References {
		found, err := user.registry.SchemaByVersion(user.ctx, each.Subject, each.Version)
		if err != nil {
			return err
		}
		if err := user.referred(found.Schema, use); err != nil {
			return err
		}
		if err := use(each.Name, found.Schema.Schema); err != nil {
			return err
		}
	}
	return nil
}

func jsonCodec() *codec {
	return &codec{
		encode: func(value []byte, _ string) ([]byte, []int, error) {
			var compact bytes.Buffer
			err := json.Compact(&compact, value)
			return compact.Bytes(), nil, err
		},
		decode: func(data []byte, _ []int) (any, error) { return json.RawMessage(data), nil },
	}
}

func (user *schemaUser) avroCodec(schema sr.Schema) (*codec, error) {
	cache := new(avro.SchemaCache)
	// Numbers as they are stored, not as times: JSON has none.
	plain := []avro.SchemaOpt{}
	for _, each := range []string{"date", "timestamp-millis", "timestamp-micros", "decimal", "uuid"} {
		plain = append(plain, avro.CustomType{LogicalType: each})
	}
	parse := func(_, text string) error { _, err := cache.Parse(text, plain...); return err }
	if err := user.referred(schema, parse); err != nil {
		return nil, err
	}
	parsed, err := cache.Parse(schema.Schema, plain...)
	if err != nil {
		return nil, err
	}
	return &codec{
		encode: func(value []byte, _ string) ([]byte, []int, error) {
			var found any
			decoder := json.NewDecoder(bytes.NewReader(value))
			decoder.UseNumber()
			if err := decoder.Decode(&found); err != nil {
				return nil, nil, err
			}
			data, err := parsed.Encode(withBytes(found))
			return data, nil, err
		},
		decode: func(data []byte, _ []int) (any, error) {
			var found any
			rest, err := parsed.Decode(data, &found)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("%d bytes too many", len(rest))
			}
			return withoutBytes(found), err
		},
	}, nil
}

// withBytes replaces {"$bytes": "<hex>"} by what it says.
func withBytes(value any) any {
	switch value := value.(type) {
	case []any:
		for n := range value {
			value[n] = withBytes(value[n])
		}
	case map[string]any:
		if text, is := value["$bytes"].(string); is {
			data, _ := hex.DecodeString(text)
			return data
		}
		for name := range value {
			value[name] = withBytes(value[name])
		}
	}
	return value
}

func withoutBytes(value any) any {
	switch value := value.(type) {
	case []byte:
		return map[string]string{"$bytes": hex.EncodeToString(value)}
	case []any:
		for n := range value {
			value[n] = withoutBytes(value[n])
		}
	case map[string]any:
		for name := range value {
			value[name] = withoutBytes(value[name])
		}
	}
	return value
}

func (user *schemaUser) protobufCodec(schema sr.Schema) (*codec, error) {
	const main = "the schema.proto"
	files := map[string]string{main: schema.Schema}
	if err := user.referred(schema, func(name, text string) error { files[name] = text; return nil }); err != nil {
		return nil, err
	}
	for name, text := range googleTypes {
		files[name] = text
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)}),
	}
	compiled, err := compiler.Compile(user.ctx, main)
	if err != nil {
		return nil, err
	}
	file := compiled[0]
	return &codec{
		encode: func(value []byte, name string) ([]byte, []int, error) {
			found := file.FindDescriptorByName(protoreflect.FullName(name)).(protoreflect.MessageDescriptor)
			message := dynamicpb.NewMessage(found)
			if err := protojson.Unmarshal(value, message); err != nil {
				return nil, nil, err
			}
			data, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
			return data, indexOf(found), err
		},
		decode: func(data []byte, index []int) (any, error) {
			found := file.Messages().Get(index[0])
			for _, each := range index[1:] {
				found = found.Messages().Get(each)
			}
			message := dynamicpb.NewMessage(found)
			if err := proto.Unmarshal(data, message); err != nil {
				return nil, err
			}
			text, err := protojson.Marshal(message)
			return json.RawMessage(text), err
		},
	}, nil
}

// indexOf returns the place of a message in its file.
func indexOf(message protoreflect.MessageDescriptor) []int {
	if parent, is := message.Parent().(protoreflect.MessageDescriptor); is {
		return append(indexOf(parent), message.Index())
	}
	return []int{message.Index()}
}

// googleTypes are files of Google that schemas import without a reference, and the compiler lacks.
var googleTypes = map[string]string{
	"google/type/money.proto": `syntax = "proto3";
package google.type;
message Money {
  string currency_code = 1;
  int64 units = 2;
  int32 nanos = 3;
}`,
}
