package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr"
)

// schemasCalls makes each call of franz-go's client of a registry: it returns what they found, or
// the status and the code of an error.
func schemasCalls(ctx context.Context, file string, _ *login) (any, error) {
	user, err := newSchemaUser(ctx, file)
	if err != nil {
		return nil, err
	}
	defer user.log.Close()
	client := user.registry
	const mine, theirs = "mine-go/a %é", "theirs"
	typed := func(kind string) sr.Schema {
		return sr.Schema{Schema: fmt.Sprintf(`{"type":"record","name":"R","fields":[{"name":"a","type":%q}]}`, kind)}
	}
	made, err := client.CreateSchema(ctx, mine, typed("int"))
	if err != nil {
		return nil, err
	}
	deleted := sr.WithParams(ctx, sr.ShowDeleted)
	inside := sr.InContext(ctx, ".mine")
	steps := []struct {
		name string
		call func() (any, error)
	}{
		{"register", func() (any, error) {
			id, err := client.RegisterSchema(ctx, mine, typed("int"), -1, -1)
			return id == made.ID, err
		}},
		{"id", func() (any, error) { found, err := client.SchemaByID(ctx, made.ID); return found.Schema, err }},
		{"text of id", func() (any, error) { return client.SchemaTextByID(ctx, made.ID) }},
		{"guid", func() (any, error) {
			found, err := client.SchemaByGUID(ctx, made.GUID)
			return found.Schema.Schema, err
		}},
		{"ids of guid", func() (any, error) { found, err := client.SchemaIDsByGUID(ctx, made.GUID); return len(found), err }},
		{"subjects of id", func() (any, error) { return client.SubjectsByID(ctx, made.ID) }},
		{"versions of id", func() (any, error) { found, err := client.SchemaVersionsByID(ctx, made.ID); return len(found), err }},
		{"usages of id", func() (any, error) { found, err := client.SchemaUsagesByID(ctx, made.ID); return len(found), err }},
		{"lookup", func() (any, error) {
			found, err := client.LookupSchema(ctx, mine, typed("int"))
			return found.Version, err
		}},
		{"latest", func() (any, error) { found, err := client.SchemaByVersion(ctx, mine, -1); return found.Version, err }},
		{"text of version", func() (any, error) { return client.SchemaTextByVersion(ctx, mine, 1) }},
		{"references", func() (any, error) { found, err := client.SchemaReferences(ctx, mine, 1); return len(found), err }},
		{"versions", func() (any, error) { return client.SubjectVersions(ctx, mine) }},
		{"subjects", func() (any, error) { return client.Subjects(ctx) }},
		{"schemas", func() (any, error) { found, err := client.Schemas(ctx, mine); return len(found), err }},
		{"all schemas", func() (any, error) { found, err := client.AllSchemas(ctx); return len(found), err }},
		{"types", func() (any, error) { found, err := client.SupportedTypes(ctx); return fmt.Sprint(found), err }},
		{"contexts", func() (any, error) { return client.Contexts(ctx) }},
		{"register inside", func() (any, error) {
			found, err := client.CreateSchema(inside, "a/b", typed("string"))
			return fmt.Sprint(found.Subject, " ", found.ID), err
		}},
		{"subjects inside", func() (any, error) { return client.Subjects(inside) }},
		{"id inside", func() (any, error) { found, err := client.SchemaByID(inside, 1); return len(found.Schema), err }},
		{"theirs inside", func() (any, error) { return client.Subjects(sr.InContext(ctx, ".theirs")) }},
		{"compatible", func() (any, error) {
			found, err := client.CheckCompatibility(ctx, mine, -1, typed("long"))
			return found.Is, err
		}},
		{"incompatible", func() (any, error) {
			found, err := client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), mine, 1, typed("string"))
			return len(found.Messages) > 0 && !found.Is, err
		}},
		{"refused", func() (any, error) { return client.CreateSchema(ctx, mine, typed("string")) }},
		{"invalid", func() (any, error) { return client.CreateSchema(ctx, mine, sr.Schema{Schema: "{"}) }},
		{"set level", func() (any, error) {
			found := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, mine)[0]
			return fmt.Sprint(found.Level), found.Err
		}},
		{"level", func() (any, error) {
			found := client.Compatibility(ctx, mine)[0]
			return fmt.Sprint(found.Level), found.Err
		}},
		{"reset level", func() (any, error) {
			found := client.ResetCompatibility(ctx, mine)[0]
			return fmt.Sprint(found.Level), found.Err
		}},
		{"default level", func() (any, error) { found := client.Compatibility(ctx)[0]; return nil, found.Err }},
		{"set mode", func() (any, error) {
			found := client.SetMode(ctx, sr.ModeReadOnly, mine)[0]
			return fmt.Sprint(found.Mode), found.Err
		}},
		{"read only", func() (any, error) { return client.CreateSchema(ctx, mine, typed("long")) }},
		{"mode", func() (any, error) { found := client.Mode(ctx, mine)[0]; return fmt.Sprint(found.Mode), found.Err }},
		{"reset mode", func() (any, error) {
			found := client.ResetMode(ctx, mine)[0]
			return fmt.Sprint(found.Mode), found.Err
		}},
		{"theirs", func() (any, error) { return client.SchemaByVersion(ctx, theirs, -1) }},
		{"register theirs", func() (any, error) { return client.CreateSchema(ctx, theirs, typed("int")) }},
		{"delete too soon", func() (any, error) { return client.DeleteSubject(ctx, mine, sr.HardDelete) }},
		{"delete version", func() (any, error) { return nil, client.DeleteSchema(ctx, mine, 1, sr.SoftDelete) }},
		{"deleted versions", func() (any, error) { return client.SubjectVersions(deleted, mine) }},
		{"delete for ever", func() (any, error) { return client.DeleteSubject(ctx, mine, sr.HardDelete) }},
		{"gone", func() (any, error) { return client.SubjectVersions(ctx, mine) }},
	}
	seen := map[string]any{}
	for _, step := range steps {
		found, err := step.call()
		var refused *sr.ResponseError
		if errors.As(err, &refused) {
			seen[step.name] = fmt.Sprint(refused.StatusCode, " ", refused.ErrorCode)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		} else {
			seen[step.name] = found
		}
	}
	return seen, nil
}
